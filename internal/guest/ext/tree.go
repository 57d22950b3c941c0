package ext

import (
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/guest/tree"
)

// maxEntries bounds the names of one folder that are listed.
const maxEntries = 1 << 16

// Tree returns the file system as a tree. It takes no reads but of the root's inode.
// Each call of a node's methods takes MaxReads reads at most, ReadAt one more for each
// 512 bytes it is asked for.
func (fs *FS) Tree() (*tree.Tree, error) {
	fs.reads = 0
	root, err := fs.inode(rootInode)
	if err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	return tree.New(&node{fs, root}), nil
}

// Usage returns how full the file system is, as its superblock has it: right after a
// clean shutdown.
func (fs *FS) Usage() tree.Usage {
	return tree.Usage{Size: fs.blocks * fs.blockSize, Free: max(0, min(fs.free, fs.blocks)) * fs.blockSize}
}

// A node is an inode as a tree's node.
type node struct {
	fs    *FS
	inode *inode
}

func (n *node) Kind() tree.Kind { return tree.KindOf(uint32(n.inode.mode)) }

func (n *node) Size() int64 { return n.inode.size }

// ReadAt reads runs of blocks that lie side by side at once: an initramfs over a network
// in blocks of 4 KiB would take minutes.
func (n *node) ReadAt(p []byte, off int64) (int, error) {
	n.fs.reads = -(len(p) / disk.SectorSize)
	return tree.ReadRuns(p, off, n.inode.size, func(p []byte, off int64) (int, error) { return n.fs.readRun(n.inode, p, off) })
}

// maxRun bounds one read of the disk, in bytes.
const maxRun = 1 << 20

// readRun fills the start of p, which is not empty, from byte off of n's file: as many
// blocks as lie side by side.
func (fs *FS) readRun(n *inode, p []byte, off int64) (int, error) {
	find := fs.mappedRun
	if n.flags&flagExtents != 0 {
		find = fs.extentRun
	}
	skip := off % fs.blockSize
	p = p[:min(len(p), maxRun)]
	if err := fs.r.Budget().Step(1); err != nil {
		return 0, err
	}
	at, count, err := find(n, off/fs.blockSize, (skip+int64(len(p))+fs.blockSize-1)/fs.blockSize)
	if err != nil {
		return 0, err
	}
	p = p[:min(int64(len(p)), count*fs.blockSize-skip)]
	if err := fs.r.Budget().Step(int64(len(p)) >> 12); err != nil {
		return 0, err
	}
	if at == 0 {
		clear(p)
		return len(p), nil
	}
	if last := at + (skip+int64(len(p))-1)/fs.blockSize; last >= fs.blocks {
		return 0, fmt.Errorf("block %d of %d", last, fs.blocks)
	}
	return len(p), fs.read(p, at, skip)
}

// mappedRun returns where block i of a mapped file is, 0 for a hole, and how many of the
// wanted blocks follow one another from there.
func (fs *FS) mappedRun(n *inode, i, want int64) (at, count int64, err error) {
	if at, err = fs.mapped(n, i); err != nil || at == 0 {
		return at, 1, err
	}
	for count = 1; count < want; count++ {
		next, err := fs.mapped(n, i+count)
		if err != nil {
			return 0, 0, err
		}
		if next != at+count {
			break
		}
	}
	return at, count, fs.r.Budget().Step(count >> 4)
}

// extentRun does the same for a file of extents, and reads each node once.
func (fs *FS) extentRun(n *inode, i, want int64) (at, count int64, err error) {
	node := n.where[:]
	for range 6 {
		if le16(node, 0) != 0xf30a {
			return 0, 0, errors.New("extent node without its magic number")
		}
		entries := int(le16(node, 2))
		if 12+entries*12 > len(node) {
			return 0, 0, fmt.Errorf("extent node with %d entries", entries)
		}
		if le16(node, 6) == 0 {
			at, count = leafRun(node, entries, i)
			return at, min(count, want), nil
		}
		child := branch(node, entries, i)
		if child == 0 {
			return 0, 1, nil
		}
		if node, err = fs.block(child); err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, errors.New("extent tree deeper than 5")
}

// leafRun returns where block i is, 0 for a hole, and how far its extent goes on.
func leafRun(node []byte, entries int, i int64) (at, count int64) {
	for e := range entries {
		entry := node[12+e*12:]
		first, length := int64(le32(entry, 0)), int64(le16(entry, 4))
		if length > 32768 {
			length -= 32768 // allocated, reads as zeros
		}
		if i >= first && i < first+length {
			return leaf(node, entries, i), first + length - i
		}
	}
	return 0, 1
}

func (n *node) Target() (string, error) {
	n.fs.reads = 0
	if n.Kind() != tree.Link {
		return "", errors.New("no symbolic link")
	}
	return n.fs.link(n.inode)
}

func (n *node) Find(name string) (tree.Node, error) {
	n.fs.reads = 0
	num, err := n.fs.find(n.inode, name)
	if err != nil {
		return nil, err
	}
	found, err := n.fs.inode(num)
	if err != nil {
		return nil, err
	}
	return &node{n.fs, found}, nil
}

func (n *node) List() ([]tree.Entry, error) {
	n.fs.reads = 0
	var all []tree.Entry
	for i := int64(0); i*n.fs.blockSize < min(n.inode.size, maxDir); i++ {
		list, err := n.fs.fileBlock(n.inode, i)
		if err != nil {
			return nil, err
		}
		known := len(all)
		if all, err = entriesOf(list, all); err != nil {
			return nil, err
		}
		if err := n.fs.r.Budget().Step(int64(len(all) - known)); err != nil {
			return nil, err
		}
		if len(all) > maxEntries {
			return nil, fmt.Errorf("a folder of more than %d names", maxEntries)
		}
	}
	return all, nil
}

// entriesOf adds the names of one block of a folder.
func entriesOf(list []byte, all []tree.Entry) ([]tree.Entry, error) {
	kinds := [...]tree.Kind{1: tree.File, 2: tree.Folder, 7: tree.Link}
	for len(list) >= 8 {
		num, length, nameLen := le32(list, 0), int(le16(list, 4)), int(list[6])
		if length < 8 || length > len(list) || 8+nameLen > length {
			return nil, fmt.Errorf("a folder entry of %d bytes with a name of %d", length, nameLen)
		}
		if name := string(list[8 : 8+nameLen]); num != 0 && name != "." && name != ".." && name != "" {
			e := tree.Entry{Name: name}
			if kind := int(list[7]); kind < len(kinds) {
				e.Kind = kinds[kind]
			}
			all = append(all, e)
		}
		list = list[length:]
	}
	return all, nil
}
