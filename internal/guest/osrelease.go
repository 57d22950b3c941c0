package guest

import (
	"errors"
	"strings"

	"github.com/decamp/decamp/internal/guest/ext"
)

// maxOSRelease is far more than any os-release has, in bytes.
const maxOSRelease = 64 << 10

// readOS takes the OS from the first file system that has an os-release. The third
// place is that of a /usr of its own.
func (d *detector) readOS(kind FileSystem, w *window) {
	if d.report.OS.ID != "" || (kind != Ext2 && kind != Ext3 && kind != Ext4) {
		return
	}
	fs, err := ext.Open(w)
	for _, path := range []string{"etc/os-release", "usr/lib/os-release", "lib/os-release"} {
		if err != nil {
			break
		}
		var text []byte
		text, err = fs.ReadFile(path, maxOSRelease)
		if err == nil {
			d.report.OS = parseOSRelease(string(text))
			return
		}
		if errors.Is(err, ext.ErrNotFound) {
			err = nil
		}
	}
	if err != nil {
		d.warn("file-system", "the %s file system at byte %d cannot be read: %v", kind, w.off, err)
	}
}

// parseOSRelease reads what os-release(5) describes: shell assignments without
// expansion.
func parseOSRelease(text string) OS {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(key, "#") {
			values[key] = unquote(value)
		}
	}
	os := OS{ID: values["ID"], Name: values["PRETTY_NAME"], Version: values["VERSION_ID"]}
	if os.Name == "" {
		os.Name = values["NAME"]
	}
	if os.ID == "" && os.Name != "" {
		os.ID = "linux" // what os-release(5) says a missing ID means
	}
	return os
}

// unquote removes a shell's quotes, and the backslashes within double ones.
func unquote(s string) string {
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '"' && s[0] != '\'' {
		return s
	}
	inner := s[1 : len(s)-1]
	if s[0] == '\'' {
		return inner
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\$`, `$`, "\\`", "`").Replace(inner)
}
