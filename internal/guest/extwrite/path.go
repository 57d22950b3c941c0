package extwrite

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// errNotFound matches both fs.ErrNotExist and fault.NotFound.
var errNotFound error = &fault.Error{Kind: fault.NotFound, Err: fs.ErrNotExist}

// A walk resolves one path. Absolute links start at the root of this file system, as in a chroot.
type walk struct {
	resolver *resolver // access to folders and links
	trail    []uint32  // folders from the root to the current one, for ".."
	links    int       // symbolic links followed so far, at most maxLinks
}

// A resolver resolves paths to inodes.
type resolver struct {
	inodes  *inodeTable // access to inodes
	maps    *mappings   // content of links that do not fit the inode
	folders *folders    // names
}

// resolvePath returns the inode at path, with all links followed. The error is errNotFound if it does
// not exist.
func (r *resolver) resolvePath(path string) (inode, error) {
	w := walk{resolver: r, trail: []uint32{rootInode}}
	_, name, err := w.followPath(path)
	if err != nil {
		return inode{}, err
	}
	if name != "" {
		return inode{}, errNotFound
	}
	return r.inodes.readInode(w.currentFolder())
}

// resolveForWrite returns the inode at path and an empty name if the path exists. If only the last
// name is missing, it returns the folder and that name.
func (r *resolver) resolveForWrite(path string) (inode, string, error) {
	w := walk{resolver: r, trail: []uint32{rootInode}}
	num, name, err := w.followPath(path)
	if err != nil {
		return inode{}, "", err
	}
	n, err := r.inodes.readInode(num)
	return n, name, err
}

// currentFolder returns the inode number that the walk has reached.
func (w *walk) currentFolder() uint32 { return w.trail[len(w.trail)-1] }

// followPath resolves path. If only the last name is missing, followPath returns it, and num is the
// folder. Otherwise num is the inode at path.
func (w *walk) followPath(path string) (num uint32, missing string, err error) {
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
		// Only a missing last name is a place for a new file.
		target, err := w.enterName(name)
		if errors.Is(err, errNotFound) && strings.Trim(path, "/") == "" {
			return w.currentFolder(), name, nil
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
		// The target replaces the link; the rest of the path follows.
		path = target + "/" + path
	}
	return w.currentFolder(), "", nil
}

// enterName enters the name in the current folder. For a symbolic link it does not move and returns the
// link's target.
func (w *walk) enterName(name string) (target string, err error) {
	folder, err := w.resolver.inodes.readInode(w.currentFolder())
	if err != nil {
		return "", err
	}
	if !folder.hasType(modeDir) {
		return "", fault.New(fault.NotFound, "a part of the path is not a folder")
	}
	num, err := w.resolver.folders.lookUp(folder, name)
	if err != nil {
		return "", err
	}
	n, err := w.resolver.inodes.readInode(num)
	if err != nil {
		return "", err
	}
	if n.hasType(modeLink) {
		return w.resolver.readTarget(n)
	}
	w.trail = append(w.trail, num)
	return "", nil
}

// readTarget returns the target of a symbolic link. Targets of less than 60 bytes are in the inode.
func (r *resolver) readTarget(n inode) (string, error) {
	if n.size() == 0 || n.size() > maxPath {
		return "", corrupt("a symbolic link of %d bytes", n.size())
	}
	if n.size() < int64(len(n.blockArea())) {
		return string(n.blockArea()[:n.size()]), nil
	}
	data, err := r.maps.readContent(n, 0)
	return string(data), err
}

// newName returns the folder and the name for a new file at path. The error is fault.Conflict if
// the path exists.
func (r *resolver) newName(path string) (inode, string, error) {
	folder, name, err := r.resolveParent(path)
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

// resolveParent returns the folder of path and the last name. It does not follow a link of that name.
func (r *resolver) resolveParent(path string) (inode, string, error) {
	path = strings.TrimRight(path, "/")
	name := path[strings.LastIndexByte(path, '/')+1:]
	if name == "" || name == "." || name == ".." {
		return inode{}, "", fault.New(fault.Invalid, "%q is not a valid file name", name)
	}
	folder, err := r.resolvePath(strings.TrimSuffix(path, name))
	return folder, name, err
}
