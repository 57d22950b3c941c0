package convert

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/guest/extwrite"
)

// A mount is an open file system with its position among the guest's files.
type mount struct {
	at string     // path without a leading slash: empty for the root, "boot"
	fs FileSystem // file system that is mounted there
}

// A tree is the guest's files as the guest sees them: its root, which is first, and the mounted file
// systems. Paths have no leading slash. A link is resolved within its file system.
type tree []mount

// findMount returns the file system that contains a path, and the path in it.
func (t tree) findMount(path string) (FileSystem, string) {
	best := t[0]
	for _, m := range t[1:] {
		if rest, ok := strings.CutPrefix(path, m.at); ok && len(m.at) > len(best.at) && (rest == "" || rest[0] == '/') {
			best = m
		}
	}
	return best.fs, strings.TrimPrefix(path, best.at)
}

// maxText limits the size of configuration files, in bytes.
const maxText = 1 << 20

// readText returns the content of a file; there is false if it does not exist.
func (t tree) readText(path string) (text string, there bool, err error) {
	on, inner := t.findMount(path)
	data, err := on.ReadFile(inner, maxText)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return string(data), err == nil, err
}

// hasPath reports whether path exists. A dangling symbolic link exists.
func (t tree) hasPath(path string) bool {
	on, inner := t.findMount(path)
	if _, err := on.Size(inner); err == nil {
		return true
	}
	// Size follows links and fails for a dangling one.
	_, err := on.Readlink(inner)
	return err == nil
}

// listNames returns the sorted names in a folder; nil if it does not exist.
func (t tree) listNames(path string) []string {
	on, inner := t.findMount(path)
	names, err := on.Names(inner)
	if err != nil {
		return nil
	}
	slices.Sort(names)
	return names
}

// writeFile sets the content of the file at path and creates missing folders.
func (t tree) writeFile(path, text string) error {
	on, inner := t.findMount(path)
	// Each prefix of the path that ends before a slash is a folder.
	for i, c := range inner {
		if c != '/' || i == 0 {
			continue
		}
		_, err := on.Size(inner[:i])
		if errors.Is(err, fs.ErrNotExist) {
			err = on.Mkdir(inner[:i], extwrite.Attr{Mode: 0o755})
		}
		if err != nil {
			return err
		}
	}
	return on.WriteFile(inner, []byte(text), extwrite.Attr{Mode: 0o644})
}

// flush writes the changes of all file systems to the overlays.
func (t tree) flush() error {
	for _, m := range t {
		if err := m.fs.Flush(); err != nil {
			return err
		}
	}
	return nil
}
