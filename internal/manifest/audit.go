package manifest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// WriteAudit writes base.sha256 and base.md5, each durably and at once: one line that
// `sha256sum -c` and `md5sum -c` take. name is the file that line names, without a
// folder: the image itself where it is raw, so that the check runs in its folder; the
// flat file on the host (web01-flat.vmdk) where the image has another layout, for the
// sums are of the logical disk and `md5sum` there gives the same.
func WriteAudit(base, name string, r Report) error {
	if err := writeDurably(base+".sha256", sumLine(r.SHA256, name)); err != nil {
		return fmt.Errorf("write audit file %s.sha256: %w", base, err)
	}
	if err := writeDurably(base+".md5", sumLine(r.MD5, name)); err != nil {
		return fmt.Errorf("write audit file %s.md5: %w", base, err)
	}
	return nil
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

// writeDurably puts a file in place whole or not at all.
func writeDurably(path, content string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*")
	if err != nil {
		return kindOfIO(err)
	}
	_, err = f.WriteString(content)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(kindOfIO(err), os.Remove(f.Name()))
	}
	return syncDir(path)
}
