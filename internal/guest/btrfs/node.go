package btrfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	maxEntries = 1 << 16 // names of one folder
	maxTarget  = 4096    // bytes of a symbolic link's target
)

// A node is an inode of a subvolume. It implements tree.Node.
type node struct {
	fs     *FS      // file system of the inode
	volume blockRef // root of the subvolume's tree
	number uint64   // number of the inode, unique within the subvolume
	mode   uint32   // type and permissions
	size   int64    // bytes of the file

	list   []extent       // extents in order, cached by readExtents
	listed bool           // list is complete
	plain  unpackedExtent // last extent that was decompressed
}

// openSubvolume returns the root folder of the subvolume with the ID.
func (f *FS) openSubvolume(id uint64) (*node, error) {
	_, data, err := f.findItem(f.roots, key{object: id, kind: keyRoot})
	if err != nil {
		return nil, fmt.Errorf("subvolume %d: %w", id, err)
	}
	if len(data) < 239 {
		return nil, fmt.Errorf("subvolume %d of %d bytes", id, len(data))
	}
	// Offsets in a root item: 176 address of the tree, 238 its level.
	return f.readInode(blockRef{le64(data, 176), data[238]}, rootDir)
}

// readInode reads an inode of the subvolume whose tree has the root volume.
func (f *FS) readInode(volume blockRef, number uint64) (*node, error) {
	_, data, err := f.findItem(volume, key{object: number, kind: keyInode})
	if err != nil {
		return nil, fmt.Errorf("inode %d: %w", number, err)
	}
	if len(data) < 160 || int64(le64(data, 16)) < 0 {
		return nil, fmt.Errorf("inode %d of %d bytes", number, len(data))
	}
	return &node{fs: f, volume: volume, number: number, size: int64(le64(data, 16)), mode: le32(data, 52)}, nil
}

// Kind implements tree.Node.
func (n *node) Kind() tree.Kind { return tree.KindOf(n.mode) }

// Size implements tree.Node.
func (n *node) Size() int64 { return n.size }

// Find implements tree.Node. A subvolume is entered like a folder.
func (n *node) Find(name string) (tree.Node, error) {
	n.fs.reads = 0
	if n.Kind() != tree.Folder {
		return nil, fs.ErrNotExist
	}
	e, err := n.fs.findName(n.volume, n.number, name)
	if err != nil {
		return nil, err
	}
	// The entry of a subvolume refers to the root of another tree.
	if e.kind == keyRoot {
		return nodeOrError(n.fs.openSubvolume(e.object))
	}
	return nodeOrError(n.fs.readInode(n.volume, e.object))
}

// nodeOrError returns n and err, but no non-nil interface with a nil node.
func nodeOrError(n *node, err error) (tree.Node, error) {
	if err != nil {
		return nil, err
	}
	return n, nil
}

// List implements tree.Node. The order is that of creation.
func (n *node) List() ([]tree.Entry, error) {
	n.fs.reads = 0
	if n.Kind() != tree.Folder {
		return nil, errors.New("not a folder")
	}
	kinds := map[byte]tree.Kind{1: tree.File, 2: tree.Folder, 7: tree.Link}
	all := tree.NewListing(n.fs.r.Budget())
	defer all.Close()
	var failed error
	err := n.fs.walkTree(n.volume, key{object: n.number, kind: keyIndex}, func(k key, data []byte) bool {
		if k.object != n.number || k.kind != keyIndex {
			return false
		}
		found, err := parseEntries(data)
		if spent := n.fs.r.Budget().Step(int64(len(found))); spent != nil {
			err = spent
		}
		for i := 0; i < len(found) && err == nil; i++ {
			err = all.Add(tree.Entry{Name: found[i].name, Kind: kinds[found[i].ftype]})
		}
		if failed = err; err == nil && all.Len() > maxEntries {
			failed = fmt.Errorf("a folder of more than %d names", maxEntries)
		}
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	return all.Close(), nil
}

// Target implements tree.Node.
func (n *node) Target() (string, error) {
	n.fs.reads = 0
	switch {
	case n.Kind() != tree.Link:
		return "", errors.New("not a symbolic link")
	case n.size == 0 || n.size > maxTarget:
		return "", fmt.Errorf("a symbolic link of %d bytes", n.size)
	}
	target := make([]byte, n.size)
	_, err := n.readAt(target, 0)
	return string(target), err
}

// ReadAt implements io.ReaderAt.
func (n *node) ReadAt(p []byte, off int64) (int, error) {
	n.fs.reads = 0
	if n.Kind() != tree.File {
		return 0, errors.New("not a regular file")
	}
	return n.readAt(p, off)
}

// readAt reads the content of a file or symbolic link.
func (n *node) readAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= n.size {
		return 0, io.EOF
	}
	list, err := n.readExtents()
	if err != nil {
		return 0, err
	}
	return tree.ReadRuns(p, off, n.size, func(p []byte, off int64) (int, error) { return n.readRun(list, p, off) })
}
