package manifest

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/atomicfile"
)

// WriteAudit writes base.sha256 and, if the report has an MD5, base.md5, each durably and atomically.
// Each is one line in the format of `sha256sum -c` and `md5sum -c`. name is the file in that line, without a folder. For a raw
// image it is the image, so that the check works in its folder. For another format it is the flat file
// on the host (web01-flat.vmdk): the sums are of the logical disk, and `sha256sum` returns the same there.
func WriteAudit(base, name string, r Report) error {
	if err := writeSum(base+".sha256", r.SHA256, name); err != nil {
		return fmt.Errorf("write audit file %s.sha256: %w", base, err)
	}
	if r.MD5 == "" {
		return nil
	}
	if err := writeSum(base+".md5", r.MD5, name); err != nil {
		return fmt.Errorf("write audit file %s.md5: %w", base, err)
	}
	return nil
}

// writeSum writes one audit file.
func writeSum(path, sum, name string) error {
	return kindOfIO(atomicfile.Replace(path, []byte(sumLine(sum, name)), 0o644))
}

// sumLine returns the line for sum and name. Names with a backslash or a line break are escaped as in
// GNU coreutils, with a backslash before the sum.
func sumLine(sum, name string) string {
	escaped := strings.NewReplacer("\\", `\\`, "\n", `\n`, "\r", `\r`).Replace(name)
	if escaped != name {
		sum = `\` + sum
	}
	return sum + "  " + escaped + "\n"
}
