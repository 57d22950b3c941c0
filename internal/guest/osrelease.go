package guest

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/decamp/decamp/internal/guest/tree"
)

// maxOSRelease limits the bytes of an os-release; usual ones have less than 1 KiB.
const maxOSRelease = 64 << 10

// osRelease returns the os-release of a file system; empty if it has none. The third path is valid
// for a separate /usr.
func osRelease(t *tree.Tree) (string, error) {
	for _, path := range []string{"etc/os-release", "usr/lib/os-release", "lib/os-release"} {
		text, err := t.ReadFile(path, maxOSRelease)
		if err == nil {
			return string(text), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", nil
}

// parseOSRelease parses the shell assignments of os-release(5), which have no expansion.
func parseOSRelease(text string) OS {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(key, "#") {
			values[key] = unquoteShell(value)
		}
	}
	os := OS{ID: values["ID"], Name: values["PRETTY_NAME"], Version: values["VERSION_ID"]}
	if os.Name == "" {
		os.Name = values["NAME"]
	}
	if os.ID == "" && os.Name != "" {
		os.ID = "linux" // the default of os-release(5) for a missing ID
	}
	return os
}

// unquoteShell removes a shell's quotes, and backslashes within double quotes.
func unquoteShell(s string) string {
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '"' && s[0] != '\'' {
		return s
	}
	inner := s[1 : len(s)-1]
	if s[0] == '\'' {
		return inner
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\$`, `$`, "\\`", "`").Replace(inner)
}
