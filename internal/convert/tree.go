package convert

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/guest/extwrite"
)

// A mount is a file system and where the guest has it: "" for the root, "boot".
type mount struct {
	at string
	fs FileSystem
}

// A tree is the guest's files as the guest sees them: its root and the mounted file systems. Paths have
// no leading slash. A link is resolved within its file system.
type tree []mount

// find returns the file system that a path is on, and the path in it.
func (t tree) find(path string) (FileSystem, string) {
	best := t[0]
	for _, m := range t[1:] {
		if rest, ok := strings.CutPrefix(path, m.at); ok && len(m.at) > len(best.at) && (rest == "" || rest[0] == '/') {
			best = m
		}
	}
	return best.fs, strings.TrimPrefix(path, best.at)
}

// maxText bounds configuration files, in bytes.
const maxText = 1 << 20

// text returns a file's content. A file that is not there is empty.
func (t tree) text(path string) (text string, there bool, err error) {
	on, inner := t.find(path)
	data, err := on.ReadFile(inner, maxText)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return string(data), err == nil, err
}

// has reports whether there is anything at path.
func (t tree) has(path string) bool {
	on, inner := t.find(path)
	if _, err := on.Size(inner); err == nil {
		return true
	}
	_, err := on.Readlink(inner)
	return err == nil
}

// names returns the names in a folder, in order; none if there is no such folder.
func (t tree) names(path string) []string {
	on, inner := t.find(path)
	names, err := on.Names(inner)
	if err != nil {
		return nil
	}
	slices.Sort(names)
	return names
}

// write gives the file at path that content, and makes the folders above that are missing.
func (t tree) write(path, text string) error {
	on, inner := t.find(path)
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

// flush writes the changes to the overlays.
func (t tree) flush() error {
	for _, m := range t {
		if err := m.fs.Flush(); err != nil {
			return err
		}
	}
	return nil
}
