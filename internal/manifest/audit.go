package manifest

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/atomicfile"
)

// WriteAudit writes base.sha256 and base.md5, each durably and at once: one line that
// `sha256sum -c` and `md5sum -c` take. name is the file that line names, without a
// folder: the image itself where it is raw, so that the check runs in its folder; the
// flat file on the host (web01-flat.vmdk) where the image has another layout, for the
// sums are of the logical disk and `md5sum` there gives the same.
func WriteAudit(base, name string, r Report) error {
	if err := writeSum(base+".sha256", r.SHA256, name); err != nil {
		return fmt.Errorf("write audit file %s.sha256: %w", base, err)
	}
	if err := writeSum(base+".md5", r.MD5, name); err != nil {
		return fmt.Errorf("write audit file %s.md5: %w", base, err)
	}
	return nil
}

func writeSum(path, sum, name string) error {
	return kindOfIO(atomicfile.Replace(path, []byte(sumLine(sum, name)), 0o644))
}

// sumLine writes names with a backslash or a line break as GNU coreutils does: escaped,
// with a backslash before the sum.
func sumLine(sum, name string) string {
	escaped := strings.NewReplacer("\\", `\\`, "\n", `\n`, "\r", `\r`).Replace(name)
	if escaped != name {
		sum = `\` + sum
	}
	return sum + "  " + escaped + "\n"
}
