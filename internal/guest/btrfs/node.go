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
	maxTarget  = 4096    // bytes of a symbolic link
)

// A node is an inode of a subvolume, as a tree's node.
type node struct {
	fs     *FS
	volume block // the tree of its subvolume
	number uint64
	mode   uint32
	size   int64

	list   []extent // extents of the file's content, in order
	listed bool
	plain  unpacked // the extent that was unpacked last
}

// subvolume returns the top folder of one.
func (f *FS) subvolume(id uint64) (*node, error) {
	_, data, err := f.item(f.roots, key{object: id, kind: keyRoot})
	if err != nil {
		return nil, fmt.Errorf("subvolume %d: %w", id, err)
	}
	if len(data) < 239 {
		return nil, fmt.Errorf("subvolume %d of %d bytes", id, len(data))
	}
	return f.inode(block{le64(data, 176), data[238]}, rootDir)
}

func (f *FS) inode(volume block, number uint64) (*node, error) {
	_, data, err := f.item(volume, key{object: number, kind: keyInode})
	if err != nil {
		return nil, fmt.Errorf("inode %d: %w", number, err)
	}
	if len(data) < 160 || int64(le64(data, 16)) < 0 {
		return nil, fmt.Errorf("inode %d of %d bytes", number, len(data))
	}
	return &node{fs: f, volume: volume, number: number, size: int64(le64(data, 16)), mode: le32(data, 52)}, nil
}

func (n *node) Kind() tree.Kind { return tree.KindOf(n.mode) }

func (n *node) Size() int64 { return n.size }

// Find looks a name up. A subvolume is entered as if it were a folder.
func (n *node) Find(name string) (tree.Node, error) {
	n.fs.reads = 0
	if n.Kind() != tree.Folder {
		return nil, fs.ErrNotExist
	}
	e, err := n.fs.find(n.volume, n.number, name)
	if err != nil {
		return nil, err
	}
	if e.kind == keyRoot {
		return orNone(n.fs.subvolume(e.object))
	}
	return orNone(n.fs.inode(n.volume, e.object))
}

// orNone keeps a nil node from becoming an interface that is not nil.
func orNone(n *node, err error) (tree.Node, error) {
	if err != nil {
		return nil, err
	}
	return n, nil
}

// List returns the names of a folder in the order they were made.
func (n *node) List() ([]tree.Entry, error) {
	n.fs.reads = 0
	if n.Kind() != tree.Folder {
		return nil, errors.New("no folder")
	}
	kinds := map[byte]tree.Kind{1: tree.File, 2: tree.Folder, 7: tree.Link}
	var all []tree.Entry
	var failed error
	err := n.fs.walk(n.volume, key{object: n.number, kind: keyIndex}, func(k key, data []byte) bool {
		if k.object != n.number || k.kind != keyIndex {
			return false
		}
		found, err := entries(data)
		if spent := n.fs.r.Budget().Step(int64(len(found))); spent != nil {
			err = spent
		}
		for _, e := range found {
			all = append(all, tree.Entry{Name: e.name, Kind: kinds[e.ftype]})
		}
		if failed = err; err == nil && len(all) > maxEntries {
			failed = fmt.Errorf("a folder of more than %d names", maxEntries)
		}
		return failed == nil
	})
	return all, errors.Join(err, failed)
}

// Target reads a symbolic link.
func (n *node) Target() (string, error) {
	n.fs.reads = 0
	switch {
	case n.Kind() != tree.Link:
		return "", errors.New("no symbolic link")
	case n.size == 0 || n.size > maxTarget:
		return "", fmt.Errorf("a symbolic link of %d bytes", n.size)
	}
	target := make([]byte, n.size)
	_, err := n.readAt(target, 0)
	return string(target), err
}

// ReadAt reads a file.
func (n *node) ReadAt(p []byte, off int64) (int, error) {
	n.fs.reads = 0
	if n.Kind() != tree.File {
		return 0, errors.New("no regular file")
	}
	return n.readAt(p, off)
}

func (n *node) readAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= n.size {
		return 0, io.EOF
	}
	list, err := n.extents()
	if err != nil {
		return 0, err
	}
	return tree.ReadRuns(p, off, n.size, func(p []byte, off int64) (int, error) { return n.readRun(list, p, off) })
}
