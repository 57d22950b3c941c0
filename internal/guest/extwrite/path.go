package extwrite

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// errNotFound is fs.ErrNotExist and fault.NotFound in one.
var errNotFound error = &fault.Error{Kind: fault.NotFound, Err: fs.ErrNotExist}

// A walk follows a path. Links are followed as if the file system's root were the root of
// everything.
type walk struct {
	fs    *FS
	trail []uint32 // the folders walked through, for ".."
	links int
}

// resolve returns the inode at path.
func (fs *FS) resolve(path string) (inode, error) {
	w := walk{fs: fs, trail: []uint32{rootInode}}
	_, name, err := w.to(path)
	if err != nil {
		return inode{}, err
	}
	if name != "" {
		return inode{}, errNotFound
	}
	return fs.inode(w.here())
}

// placeOf returns the folder that a new file at path belongs to, and its name there. The name
// is empty if there is something at path; then the inode is that.
func (fs *FS) placeOf(path string) (inode, string, error) {
	w := walk{fs: fs, trail: []uint32{rootInode}}
	num, name, err := w.to(path)
	if err != nil {
		return inode{}, "", err
	}
	n, err := fs.inode(num)
	return n, name, err
}

func (w *walk) here() uint32 { return w.trail[len(w.trail)-1] }

// to walks path. Where only its last name is missing, that is returned, and num is the
// folder it is missing in.
func (w *walk) to(path string) (num uint32, missing string, err error) {
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			w.trail = w.trail[:max(1, len(w.trail)-1)]
			continue
		}
		target, err := w.step(name)
		if errors.Is(err, errNotFound) && strings.Trim(path, "/") == "" {
			return w.here(), name, nil
		}
		if err != nil {
			return 0, "", err
		}
		if target == "" {
			continue
		}
		if w.links++; w.links > maxLinks || len(target)+len(path) > maxPath {
			return 0, "", fault.New(fault.Unsupported, "more than %d symbolic links, or a path too long", maxLinks)
		}
		if target[0] == '/' {
			w.trail = w.trail[:1]
		}
		path = target + "/" + path
	}
	return w.here(), "", nil
}

// step goes on to name. For a symbolic link it stays and returns where that points.
func (w *walk) step(name string) (target string, err error) {
	folder, err := w.fs.inode(w.here())
	if err != nil {
		return "", err
	}
	if !folder.is(modeDir) {
		return "", fault.New(fault.NotFound, "a part of the path is no folder")
	}
	num, err := w.fs.lookUp(folder, name)
	if err != nil {
		return "", err
	}
	n, err := w.fs.inode(num)
	if err != nil {
		return "", err
	}
	if n.is(modeLink) {
		return w.fs.target(n)
	}
	w.trail = append(w.trail, num)
	return "", nil
}

// target returns where a symbolic link points; a short target stands in the inode itself.
func (fs *FS) target(n inode) (string, error) {
	if n.size() == 0 || n.size() > maxPath {
		return "", corrupt("a symbolic link of %d bytes", n.size())
	}
	if n.size() < int64(len(n.where())) {
		return string(n.where()[:n.size()]), nil
	}
	data, err := fs.content(n)
	return string(data), err
}
