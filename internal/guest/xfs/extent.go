package xfs

import (
	"errors"
	"fmt"
)

// maxExtents bounds the extents of one file.
const maxExtents = 1 << 18

// An extent maps blocks of a file. An unwritten one reads as zeros.
type extent struct {
	off       int64  // block of the file
	at        uint64 // block of the file system
	count     int64
	unwritten bool
}

func parseExtent(p []byte) extent {
	hi, lo := be64(p, 0), be64(p, 8)
	return extent{
		off: int64(hi >> 9 & (1<<54 - 1)), at: hi&0x1ff<<43 | lo>>21, count: int64(lo & (1<<21 - 1)), unwritten: hi>>63 != 0,
	}
}

// extents returns what a node's data fork maps, in the order of the file.
func (n *node) extents() ([]extent, error) {
	if n.mapped {
		return n.list, nil
	}
	n.list = nil // a former call may have failed halfway
	var err error
	switch n.format {
	case formatExtents:
		err = n.add(n.fork, n.count)
	case formatBtree:
		err = n.descend()
	default:
		err = fmt.Errorf("a data fork of format %d", n.format)
	}
	n.mapped = err == nil
	return n.list, err
}

// add reads extents that stand one after another.
func (n *node) add(p []byte, count int64) error {
	if count < 0 || count > int64(len(p)/16) || int64(len(n.list))+count > maxExtents {
		return fmt.Errorf("%d extents in %d bytes", count, len(p))
	}
	if err := n.fs.r.Budget().Step(count >> 2); err != nil {
		return err
	}
	for i := range int(count) {
		e := parseExtent(p[16*i:])
		if l := len(n.list); e.count == 0 || l > 0 && e.off < n.list[l-1].off+n.list[l-1].count {
			return errors.New("extents that are empty or overlap")
		}
		n.list = append(n.list, e)
	}
	return nil
}

// descend reads the tree of extents whose root is in the inode, from left to right.
func (n *node) descend() error {
	level, count, room := be16(n.fork, 0), int(be16(n.fork, 2)), (len(n.fork)-4)/16
	if level == 0 || level > 8 || count > room {
		return fmt.Errorf("a tree of %d levels with %d branches", level, count)
	}
	return n.branches(n.fork[4+8*room:], count, int(level))
}

// branches follows count pointers to nodes one level below.
func (n *node) branches(pointers []byte, count, level int) error {
	for i := range count {
		b, err := n.fs.block(be64(pointers, 8*i))
		if err != nil {
			return err
		}
		if err := n.branch(b, level-1); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) branch(b []byte, level int) error {
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
		return n.add(b[head:], int64(count))
	}
	return n.branches(b[head+8*room:], count, level)
}
