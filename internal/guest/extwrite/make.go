package extwrite

import (
	"github.com/decamp/decamp/internal/fault"
)

// Mkdir makes a folder; its parent must exist. The error is fault.Conflict if the path exists.
func (fs *FS) Mkdir(path string, a Attr) error {
	return fs.runChange("make folder", path, func() error {
		parent, name, err := fs.paths.newName(path)
		if err != nil {
			return err
		}
		// EXT4_LINK_MAX; dir_nlink would permit more with a link count of 1.
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
		return fs.folders.addName(parent, name, n.num, kindDir)
	})
}

// beginFolder writes the first block of the new folder n, with "." and "..", and the inode.
func (fs *FS) beginFolder(n, parent inode) error {
	m := &mapping{}
	if err := fs.maps.extendFile(n.num, m, 1); err != nil {
		return err
	}
	b, err := fs.stage.zeroBlock(m.diskBlock(0))
	if err != nil {
		return err
	}
	fs.super.putEntry(b, 0, 12, ".", n.num, kindDir)
	fs.super.putEntry(b, 12, fs.super.leafLen()-12, "..", parent.num, kindDir)
	fs.super.writeLeafTail(n, b)
	if err := fs.maps.writeMapping(n, m); err != nil {
		return err
	}
	// A folder has two links: its name and its own ".".
	put16(n.raw, 0x1a, 2)
	n.setSize(fs.super.blockSize)
	return fs.inodes.writeInode(n)
}

// Symlink makes a symbolic link at path to target, which has at most 59 bytes: it is stored in the
// inode. The error is fault.Conflict if the path exists.
func (fs *FS) Symlink(path, target string) error {
	return fs.runChange("link", path, func() error {
		parent, name, err := fs.paths.newName(path)
		if err != nil {
			return err
		}
		n, err := fs.makeInode(parent, modeLink, Attr{Mode: 0o777})
		if err != nil {
			return err
		}
		if target == "" || len(target) >= len(n.blockArea()) {
			return fault.New(fault.Invalid, "a symbolic link of %d bytes", len(target))
		}
		copy(n.blockArea(), target)
		n.setSize(int64(len(target)))
		if err := fs.inodes.writeInode(n); err != nil {
			return err
		}
		return fs.folders.addName(parent, name, n.num, kindLink)
	})
}

// An Attr is the owner and mode of a new file or folder.
type Attr struct {
	Mode uint16 // permission bits, for example 0o644
	UID  uint32 // user that owns the file
	GID  uint32 // group that owns the file
}

// makeInode allocates an inode for a new file in the folder parent and fills its fields. The caller
// must write it.
func (fs *FS) makeInode(parent inode, kind uint16, a Attr) (inode, error) {
	num, err := fs.alloc.newInode(parent.num, kind == modeDir)
	if err != nil {
		return inode{}, err
	}
	n := inode{num, make([]byte, fs.super.inodeSize)}
	// i_mode, i_uid, i_gid and i_links_count; the high halves of the IDs are at 0x78 and 0x7a.
	put16(n.raw, 0, kind|a.Mode&0xfff)
	put16(n.raw, 0x2, uint16(a.UID))
	put16(n.raw, 0x78, uint16(a.UID>>16))
	put16(n.raw, 0x18, uint16(a.GID))
	put16(n.raw, 0x7a, uint16(a.GID>>16))
	put16(n.raw, 0x1a, 1)
	if fs.super.inodeSize > 128 {
		// i_extra_isize and the creation time
		put16(n.raw, 0x80, min(max(fs.super.wantExtra, 28)&^3, uint16(fs.super.inodeSize-128)))
		fs.inodes.setTime(n, 0x90, 0x94)
	}
	fs.inodes.setTime(n, 0x8, 0x8c)
	if err := fs.inodes.copyLabel(n, parent); err != nil {
		return inode{}, err
	}
	if fs.super.incompat&incompatExtents != 0 && kind != modeLink {
		put32(n.raw, 0x20, flagExtents)
		return n, fs.maps.putExtents(n, &mapping{})
	}
	return n, nil
}
