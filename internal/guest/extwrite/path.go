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
	resolver *resolver
	trail    []uint32 // the folders walked through, for ".."
	links    int
}

// A resolver finds the inodes and the places that paths name.
type resolver struct {
	inodes  *inodeTable
	maps    *mappings
	folders *folders
}

// resolve returns the inode at path.
func (r *resolver) resolve(path string) (inode, error) {
	w := walk{resolver: r, trail: []uint32{rootInode}}
	_, name, err := w.to(path)
	if err != nil {
		return inode{}, err
	}
	if name != "" {
		return inode{}, errNotFound
	}
	return r.inodes.read(w.here())
}

// placeOf returns the folder that a new file at path belongs to, and its name there. The name
// is empty if there is something at path; then the inode is that.
func (r *resolver) placeOf(path string) (inode, string, error) {
	w := walk{resolver: r, trail: []uint32{rootInode}}
	num, name, err := w.to(path)
	if err != nil {
		return inode{}, "", err
	}
	n, err := r.inodes.read(num)
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
	folder, err := w.resolver.inodes.read(w.here())
	if err != nil {
		return "", err
	}
	if !folder.is(modeDir) {
		return "", fault.New(fault.NotFound, "a part of the path is no folder")
	}
	num, err := w.resolver.folders.lookUp(folder, name)
	if err != nil {
		return "", err
	}
	n, err := w.resolver.inodes.read(num)
	if err != nil {
		return "", err
	}
	if n.is(modeLink) {
		return w.resolver.target(n)
	}
	w.trail = append(w.trail, num)
	return "", nil
}

// target returns where a symbolic link points; a short target stands in the inode itself.
func (r *resolver) target(n inode) (string, error) {
	if n.size() == 0 || n.size() > maxPath {
		return "", corrupt("a symbolic link of %d bytes", n.size())
	}
	if n.size() < int64(len(n.where())) {
		return string(n.where()[:n.size()]), nil
	}
	data, err := r.maps.content(n)
	return string(data), err
}

// newName returns the folder in which path will be created, and its name there.
func (r *resolver) newName(path string) (inode, string, error) {
	folder, name, err := r.parent(path)
	if err != nil {
		return inode{}, "", err
	}
	switch _, err = r.folders.lookUp(folder, name); {
	case err == nil:
		return inode{}, "", fault.New(fault.Conflict, "it exists")
	case !errors.Is(err, errNotFound):
		return inode{}, "", err
	}
	return folder, name, nil
}

// parent returns the folder that path's last name is in. A link of that name is not followed.
func (r *resolver) parent(path string) (inode, string, error) {
	path = strings.TrimRight(path, "/")
	name := path[strings.LastIndexByte(path, '/')+1:]
	if name == "" || name == "." || name == ".." {
		return inode{}, "", fault.New(fault.Invalid, "%q is no name", name)
	}
	folder, err := r.resolve(strings.TrimSuffix(path, name))
	return folder, name, err
}
