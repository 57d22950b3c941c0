package xfs

import (
	"errors"
	"fmt"
	"math"

	"github.com/decamp/decamp/internal/guest/budget"
)

// maxExtents limits the extents of one file.
const maxExtents = 1 << 18

// An extent maps contiguous blocks of a file to the file system.
type extent struct {
	off       int64  // first block, counted within the file
	at        uint64 // first block of the file system: group and block within it
	count     int64  // length in blocks
	unwritten bool   // the blocks read as zeros
}

// parseExtent parses a packed extent of 128 bits: 1 bit unwritten, 54 bits offset, 52 bits block, 21
// bits length.
func parseExtent(p []byte) extent {
	hi, lo := be64(p, 0), be64(p, 8)
	return extent{
		off: int64(hi >> 9 & (1<<54 - 1)), at: hi&0x1ff<<43 | lo>>21, count: int64(lo & (1<<21 - 1)), unwritten: hi>>63 != 0,
	}
}

// readExtents returns the extents of the file in order and caches them. Their memory is charged until the
// examination ends.
func (n *node) readExtents() ([]extent, error) {
	if n.listed {
		return n.list, nil
	}
	var err error
	switch n.format {
	case formatExtents:
		err = n.addExtents(n.fork, n.count)
	case formatBtree:
		err = n.readExtentTree()
	default:
		err = fmt.Errorf("a data fork of format %d", n.format)
	}
	if n.listed = err == nil; !n.listed {
		budget.ReleaseSlice(n.fs.r.Budget(), n.list)
		n.list = nil
	}
	return n.list, err
}

// addExtents appends count packed extents to n.list. It fails if they overlap, if one ends beyond the
// largest offset of a file, or if there are more than maxExtents.
func (n *node) addExtents(p []byte, count int64) error {
	if count < 0 || count > int64(len(p)/16) || int64(len(n.list))+count > maxExtents {
		return fmt.Errorf("%d extents in %d bytes", count, len(p))
	}
	if err := n.fs.r.Budget().Step(count >> 2); err != nil {
		return err
	}
	list, err := budget.Grow(n.fs.r.Budget(), n.list, int(count))
	if err != nil {
		return err
	}
	n.list = list
	for i := range int(count) {
		e := parseExtent(p[16*i:])
		// readRun searches the list, so it must be sorted.
		if l := len(n.list); e.count == 0 || l > 0 && e.off < n.list[l-1].off+n.list[l-1].count {
			return errors.New("extents that are empty or overlap")
		}
		// Linux limits files to 2^63-1 bytes, so the offset of each extent in bytes fits int64.
		if e.off+e.count > math.MaxInt64/n.fs.blockSize {
			return fmt.Errorf("an extent of %d blocks from block %d on", e.count, e.off)
		}
		n.list = append(n.list, e)
	}
	return nil
}

// readExtentTree reads all leaves of the extent tree whose root is in the inode, in order.
func (n *node) readExtentTree() error {
	// Keys fill the first half of the node, pointers the second half.
	level, count, room := be16(n.fork, 0), int(be16(n.fork, 2)), (len(n.fork)-4)/16
	if level == 0 || level > 8 || count > room {
		return fmt.Errorf("a tree of %d levels with %d branches", level, count)
	}
	return n.readChildren(n.fork[4+8*room:], count, int(level))
}

// readChildren reads the nodes at count pointers, which are on the level below.
func (n *node) readChildren(pointers []byte, count, level int) error {
	for i := range count {
		b, err := n.fs.readBlock(be64(pointers, 8*i))
		if err != nil {
			return err
		}
		if err := n.readTreeNode(b, level-1); err != nil {
			return err
		}
	}
	return nil
}

// readTreeNode adds the extents of a node, or of the nodes below it. It fails if the node has another
// level, so that a loop ends.
func (n *node) readTreeNode(b []byte, level int) error {
	magic, head := "BMAP", 24
	if n.fs.version == 5 {
		magic, head = "BMA3", 72
	}
	if string(b[:4]) != magic || int(be16(b, 4)) != level {
		return fmt.Errorf("a node of the extent tree has another level than %d", level)
	}
	count, room := int(be16(b, 6)), (len(b)-head)/16
	if count > room {
		return fmt.Errorf("a node of the tree of extents with %d entries", count)
	}
	if level == 0 {
		return n.addExtents(b[head:], int64(count))
	}
	return n.readChildren(b[head+8*room:], count, level)
}
