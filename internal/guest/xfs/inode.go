package xfs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	formatLocal   = 1 // data is in the inode
	formatExtents = 2 // inode contains a list of extents
	formatBtree   = 3 // inode contains the root of an extent tree

	flagRealtime = 1       // content is on the realtime device
	maxTarget    = 1024    // bytes of a symbolic link's target
	maxRun       = 1 << 20 // bytes of one read of a file
)

// A node is an inode. It implements tree.Node.
type node struct {
	fs     *FS    // file system of the inode
	mode   uint16 // type and permissions
	format byte   // formatLocal, formatExtents or formatBtree
	size   int64  // bytes of the file
	count  int64  // number of extents
	fork   []byte // data fork: content, extents or root of the tree

	listed bool     // list is complete
	list   []extent // extents of the file in order, cached by readExtents
}

// readInode reads inode num. The number consists of group, block and position in the block.
func (fs *FS) readInode(num uint64) (*node, error) {
	at, err := fs.byteOffset(num>>fs.inodeLog, 1)
	if err != nil {
		return nil, fmt.Errorf("inode %d: %w", num, err)
	}
	raw := make([]byte, fs.inodeSize)
	if err := fs.readCounted(raw, at+int64(num&(1<<fs.inodeLog-1))*fs.inodeSize); err != nil {
		return nil, fmt.Errorf("inode %d: %w", num, err)
	}
	n, err := parseInode(raw)
	if err != nil {
		return nil, fmt.Errorf("inode %d: %w", num, err)
	}
	n.fs = fs
	return n, nil
}

// parseInode parses an inode and keeps references to raw. It fails if the file is of a kind that is not
// supported.
func parseInode(raw []byte) (*node, error) {
	if string(raw[:2]) != "IN" {
		return nil, errors.New("no magic number")
	}
	// Offsets: 2 mode, 5 format, 56 size, 76 number of extents, 82 attribute fork, 90 flags.
	n := &node{mode: be16(raw, 2), format: raw[5], size: int64(be64(raw, 56)), count: int64(be32(raw, 76))}
	// The data fork follows the core, which has 100 bytes, or 176 in version 3 inodes.
	core := 100
	// Version 3 inodes have a checksum, a UUID and more flags.
	if raw[4] >= 3 {
		core = 176
		const flag2Nrext = 1 << 4
		// nrext64 moves the number of extents to a field of 64 bits.
		if be64(raw, 120)&flag2Nrext != 0 {
			n.count = int64(be64(raw, 24))
		}
	}
	n.fork = raw[core:]
	if off := int(raw[82]) * 8; off != 0 { // attributes follow the data
		if off > len(n.fork) {
			return nil, fmt.Errorf("attributes at byte %d of %d", off, len(n.fork))
		}
		n.fork = n.fork[:off]
	}
	switch {
	case n.size < 0 || len(n.fork) < 16:
		return nil, fmt.Errorf("a file of %d bytes, a fork of %d", n.size, len(n.fork))
	case be16(raw, 90)&flagRealtime != 0 && n.Kind() == tree.File:
		return nil, errors.New("the file is on a realtime device")
	case n.format == formatLocal && n.size > int64(len(n.fork)):
		return nil, fmt.Errorf("%d bytes in a fork of %d", n.size, len(n.fork))
	}
	return n, nil
}

// Kind implements tree.Node.
func (n *node) Kind() tree.Kind { return tree.KindOf(uint32(n.mode)) }

// Size implements tree.Node.
func (n *node) Size() int64 { return n.size }

// ReadAt implements io.ReaderAt. It reads contiguous blocks with one read, at most 1 MiB.
func (n *node) ReadAt(p []byte, off int64) (int, error) {
	n.fs.reads = 0
	if n.Kind() != tree.File {
		return 0, errors.New("not a regular file")
	}
	return n.readAt(p, off)
}

// readAt reads the content of a file or of a folder.
func (n *node) readAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= n.size {
		return 0, io.EOF
	}
	if n.format == formatLocal {
		return copyPart(p, n.fork[off:n.size])
	}
	list, err := n.readExtents()
	if err != nil {
		return 0, err
	}
	return tree.ReadRuns(p, off, n.size, func(p []byte, off int64) (int, error) {
		return n.readRun(list, p[:min(len(p), maxRun)], off)
	})
}

// copyPart copies from to p and returns io.EOF if it does not fill p.
func copyPart(p, from []byte) (int, error) {
	n := copy(p, from)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readRun fills the beginning of p, which is not empty, from byte off, up to the end of an extent or
// hole. It returns the bytes read.
func (n *node) readRun(list []extent, p []byte, off int64) (int, error) {
	if err := n.fs.r.Budget().Step(1); err != nil {
		return 0, err
	}
	size := n.fs.blockSize
	// i is the first extent that ends after the block.
	block := off / size
	i, _ := slices.BinarySearchFunc(list, block+1, func(e extent, end int64) int { return cmp.Compare(e.off+e.count, end) })
	// A hole reaches to the next extent or to the end of the file.
	if i == len(list) || list[i].off > block || list[i].unwritten {
		end := off + int64(len(p))
		if i < len(list) {
			end = min(end, list[i].off*size)
			if list[i].off <= block {
				end = min(off+int64(len(p)), (list[i].off+list[i].count)*size)
			}
		}
		clear(p[:end-off])
		return int(end - off), n.fs.r.Budget().Step((end - off) >> 12)
	}
	e := list[i]
	at, err := n.fs.byteOffset(e.at, e.count)
	if err != nil {
		return 0, err
	}
	skip := off - e.off*size
	p = p[:min(int64(len(p)), e.count*size-skip)]
	return n.fs.r.ReadAt(p, at+skip)
}

// Target implements tree.Node. In version 5 each block of a link has a header.
func (n *node) Target() (string, error) {
	n.fs.reads = 0
	switch {
	case n.Kind() != tree.Link:
		return "", errors.New("not a symbolic link")
	case n.size == 0 || n.size > maxTarget:
		return "", fmt.Errorf("a symbolic link of %d bytes", n.size)
	case n.format == formatLocal:
		return string(n.fork[:n.size]), nil
	}
	list, err := n.readExtents()
	if err != nil {
		return "", err
	}
	var target []byte
	for _, e := range list {
		for i := range uint64(min(e.count, maxTarget)) {
			b, err := n.fs.readBlock(e.at + i)
			if err != nil {
				return "", err
			}
			if n.fs.version == 5 {
				b = b[56:]
			}
			if target = append(target, b...); int64(len(target)) >= n.size {
				return string(target[:n.size]), nil
			}
		}
	}
	return "", errors.New("truncated symbolic link")
}
