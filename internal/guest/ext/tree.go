package ext

import (
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/guest/tree"
)

// maxEntries limits the names that List returns for one folder.
const maxEntries = 1 << 16

// Tree returns the file system as a tree. It reads the inode of the root. Each call of a node's method
// reads at most MaxReads blocks; ReadAt reads at most one more for each 512 bytes of p.
func (fs *FS) Tree() (*tree.Tree, error) {
	fs.reads = 0
	root, err := fs.readInode(rootInode)
	if err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	return tree.New(&node{fs, root}), nil
}

// Usage returns size and free space according to the superblock, which is exact after a clean shutdown.
func (fs *FS) Usage() tree.Usage {
	return tree.Usage{Size: fs.blocks * fs.blockSize, Free: max(0, min(fs.free, fs.blocks)) * fs.blockSize}
}

// A node is an inode. It implements tree.Node.
type node struct {
	fs    *FS    // file system of the inode
	inode *inode // fields of the inode
}

// Kind implements tree.Node.
func (n *node) Kind() tree.Kind { return tree.KindOf(uint32(n.inode.mode)) }

// Size implements tree.Node.
func (n *node) Size() int64 { return n.inode.size }

// ReadAt implements io.ReaderAt. It reads contiguous blocks with one read: single blocks of an
// initramfs would take minutes over a network.
func (n *node) ReadAt(p []byte, off int64) (int, error) {
	// Reads of content do not count towards MaxReads, because the caller determines their number.
	n.fs.reads = -(len(p) / disk.SectorSize)
	return tree.ReadRuns(p, off, n.inode.size, func(p []byte, off int64) (int, error) { return n.fs.readRun(n.inode, p, off) })
}

// maxRun limits one read of the disk, in bytes.
const maxRun = 1 << 20

// readRun fills the beginning of p, which is not empty, from byte off of a file, up to the end of
// contiguous blocks. It returns the bytes read.
func (fs *FS) readRun(n *inode, p []byte, off int64) (int, error) {
	find := fs.mappedRun
	if n.flags&flagExtents != 0 {
		find = fs.extentRun
	}
	// skip is the offset within the first block.
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
	// A hole takes no read, but clearing p is charged above.
	if at == 0 {
		clear(p)
		return len(p), nil
	}
	if last := at + (skip+int64(len(p))-1)/fs.blockSize; last >= fs.blocks {
		return 0, fmt.Errorf("block %d of %d", last, fs.blocks)
	}
	return len(p), fs.readAt(p, at, skip)
}

// mappedRun returns the disk block of file block i in a block map, and the number of contiguous blocks
// from there, at most want. A hole is 0 and one block.
func (fs *FS) mappedRun(n *inode, i, want int64) (at, count int64, err error) {
	if at, err = fs.mappedBlock(n, i); err != nil || at == 0 {
		return at, 1, err
	}
	// Block maps store each block separately, so contiguous ones are found by comparison.
	for count = 1; count < want; count++ {
		next, err := fs.mappedBlock(n, i+count)
		if err != nil {
			return 0, 0, err
		}
		if next != at+count {
			break
		}
	}
	return at, count, fs.r.Budget().Step(count >> 4)
}

// extentRun returns the same for an extent tree. It reads each node once.
func (fs *FS) extentRun(n *inode, i, want int64) (at, count int64, err error) {
	node := n.blockArea[:]
	// Five levels above the leaves, and the leaf.
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
		child := childBlock(node, entries, i)
		if child == 0 {
			return 0, 1, nil
		}
		if node, err = fs.readBlock(child); err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, errors.New("extent tree deeper than 5")
}

// leafRun returns the disk block of file block i in a leaf, 0 for a hole, and the number of blocks to
// the end of its extent.
func leafRun(node []byte, entries int, i int64) (at, count int64) {
	for e := range entries {
		entry := node[12+e*12:]
		first, length := int64(le32(entry, 0)), int64(le16(entry, 4))
		// Higher lengths mark unwritten extents.
		if length > 32768 {
			length -= 32768 // allocated, reads as zeros
		}
		if i >= first && i < first+length {
			return leafBlock(node, entries, i), first + length - i
		}
	}
	return 0, 1
}

// Target implements tree.Node.
func (n *node) Target() (string, error) {
	n.fs.reads = 0
	if n.Kind() != tree.Link {
		return "", errors.New("not a symbolic link")
	}
	return n.fs.readLink(n.inode)
}

// Find implements tree.Node; names are compared with case.
func (n *node) Find(name string) (tree.Node, error) {
	n.fs.reads = 0
	num, err := n.fs.findName(n.inode, name)
	if err != nil {
		return nil, err
	}
	found, err := n.fs.readInode(num)
	if err != nil {
		return nil, err
	}
	return &node{n.fs, found}, nil
}

// List implements tree.Node. It reads at most maxDir bytes of the folder and fails if there are more
// than maxEntries names.
func (n *node) List() ([]tree.Entry, error) {
	n.fs.reads = 0
	all := tree.NewListing(n.fs.r.Budget())
	defer all.Close()
	for i := int64(0); i*n.fs.blockSize < min(n.inode.size, maxDir); i++ {
		list, err := n.fs.fileBlock(n.inode, i)
		if err != nil {
			return nil, err
		}
		// Only new names are charged.
		known := all.Len()
		if err := addEntries(list, all); err != nil {
			return nil, err
		}
		if err := n.fs.r.Budget().Step(int64(all.Len() - known)); err != nil {
			return nil, err
		}
		if all.Len() > maxEntries {
			return nil, fmt.Errorf("a folder of more than %d names", maxEntries)
		}
	}
	return all.Close(), nil
}

// addEntries adds the names of one block of a folder to all, without "." and "..".
func addEntries(list []byte, all *tree.Listing) error {
	// Byte 7 is the file type if the file system has the feature filetype; other types are tree.Other.
	kinds := [...]tree.Kind{1: tree.File, 2: tree.Folder, 7: tree.Link}
	for len(list) >= 8 {
		num, length, nameLen := le32(list, 0), int(le16(list, 4)), int(list[6])
		if length < 8 || length > len(list) || 8+nameLen > length {
			return fmt.Errorf("a folder entry of %d bytes with a name of %d", length, nameLen)
		}
		if name := string(list[8 : 8+nameLen]); num != 0 && name != "." && name != ".." && name != "" {
			e := tree.Entry{Name: name}
			if kind := int(list[7]); kind < len(kinds) {
				e.Kind = kinds[kind]
			}
			if err := all.Add(e); err != nil {
				return err
			}
		}
		list = list[length:]
	}
	return nil
}
