package extwrite

import (
	"errors"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// Mkdir makes a folder, in one that has to be there. The error is fault.Conflict if there is
// something at path.
func (fs *FS) Mkdir(path string, a Attr) error {
	return fs.do("make folder", path, func() error {
		parent, name, err := fs.newName(path)
		if err != nil {
			return err
		}
		if parent.links() >= 65000 {
			return fault.New(fault.Full, "the folder above has %d folders", parent.links()-2)
		}
		n, err := fs.makeInode(parent, modeDir, a)
		if err != nil {
			return err
		}
		if err := fs.beginFolder(n, parent); err != nil {
			return err
		}
		put16(parent.raw, 0x1a, parent.links()+1)
		return fs.link(parent, name, n.num, kindDir)
	})
}

// beginFolder writes a folder's first block and the folder's inode.
func (fs *FS) beginFolder(n, parent inode) error {
	m := &mapping{}
	if err := fs.extend(n.num, m, 1); err != nil {
		return err
	}
	b, err := fs.stage.blank(m.find(0))
	if err != nil {
		return err
	}
	fs.putEntry(b, 0, 12, ".", n.num, kindDir)
	fs.putEntry(b, 12, fs.leafLen()-12, "..", parent.num, kindDir)
	fs.sealLeaf(n, b)
	if err := fs.putMapping(n, m); err != nil {
		return err
	}
	put16(n.raw, 0x1a, 2)
	n.setSize(fs.blockSize)
	return fs.putInode(n)
}

// Symlink makes a symbolic link at path that points to target, of 59 bytes at most. The error
// is fault.Conflict if there is something at path.
func (fs *FS) Symlink(path, target string) error {
	return fs.do("link", path, func() error {
		parent, name, err := fs.newName(path)
		if err != nil {
			return err
		}
		n, err := fs.makeInode(parent, modeLink, Attr{Mode: 0o777})
		if err != nil {
			return err
		}
		if target == "" || len(target) >= len(n.where()) {
			return fault.New(fault.Invalid, "a symbolic link of %d bytes", len(target))
		}
		copy(n.where(), target)
		n.setSize(int64(len(target)))
		if err := fs.putInode(n); err != nil {
			return err
		}
		return fs.link(parent, name, n.num, kindLink)
	})
}

// newName returns the folder that path is to be made in, and its name there.
func (fs *FS) newName(path string) (inode, string, error) {
	folder, name, err := fs.parent(path)
	if err != nil {
		return inode{}, "", err
	}
	switch _, err = fs.lookUp(folder, name); {
	case err == nil:
		return inode{}, "", fault.New(fault.Conflict, "it exists")
	case !errors.Is(err, errNotFound):
		return inode{}, "", err
	}
	return folder, name, nil
}

// parent returns the folder that path's last name is in. A link of that name is not followed.
func (fs *FS) parent(path string) (inode, string, error) {
	path = strings.TrimRight(path, "/")
	name := path[strings.LastIndexByte(path, '/')+1:]
	if name == "" || name == "." || name == ".." {
		return inode{}, "", fault.New(fault.Invalid, "%q is no name", name)
	}
	folder, err := fs.resolve(strings.TrimSuffix(path, name))
	return folder, name, err
}
