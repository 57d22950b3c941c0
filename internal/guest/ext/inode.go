package ext

import (
	"errors"
	"fmt"
)

const (
	modeMask = 0xf000
	modeDir  = 0x4000
	modeFile = 0x8000
	modeLink = 0xa000

	flagExtents = 0x80000
	flagInline  = 0x10000000
	flagCrypt   = 0x800
)

// An inode is what this package needs of one.
type inode struct {
	mode  uint16
	flags uint32
	size  int64
	where [60]byte // i_block: block numbers, the root of the extent tree, or a short link
}

func (n *inode) is(mode uint16) bool { return n.mode&modeMask == mode }

// inode reads inode number num.
func (fs *FS) inode(num uint32) (*inode, error) {
	if num == 0 || num > fs.inodes {
		return nil, fmt.Errorf("inode %d of %d", num, fs.inodes)
	}
	group, index := int64((num-1)/fs.inodesPerGroup), int64((num-1)%fs.inodesPerGroup)
	desc := make([]byte, fs.descSize)
	at := (fs.firstBlock+1)*fs.blockSize + group*fs.descSize
	if err := fs.read(desc, at/fs.blockSize, at%fs.blockSize); err != nil {
		return nil, fmt.Errorf("descriptor of group %d: %w", group, err)
	}
	table := int64(le32(desc, 0x8))
	if fs.descSize >= 64 {
		table |= int64(le32(desc, 0x28)) << 32
	}
	raw := make([]byte, 128)
	at = index * fs.inodeSize
	if table >= fs.blocks {
		return nil, fmt.Errorf("inode table of group %d at block %d", group, table)
	}
	if err := fs.read(raw, table+at/fs.blockSize, at%fs.blockSize); err != nil {
		return nil, fmt.Errorf("inode %d: %w", num, err)
	}
	n := &inode{mode: le16(raw, 0), flags: le32(raw, 0x20), size: int64(le32(raw, 0x4))}
	if n.is(modeFile) {
		n.size |= int64(le32(raw, 0x6c)) << 32
	}
	copy(n.where[:], raw[0x28:])
	return n, n.check()
}

func (n *inode) check() error {
	switch {
	case n.flags&flagCrypt != 0:
		return errors.New("the file is encrypted")
	case n.flags&flagInline != 0:
		return errors.New("feature inline_data is not understood")
	case n.size < 0:
		return fmt.Errorf("a file of %d bytes", n.size)
	}
	return nil
}

// content reads the file of n, which may have limit bytes at most.
func (fs *FS) content(n *inode, limit int64) ([]byte, error) {
	if n.size > limit {
		return nil, fmt.Errorf("a file of %d bytes, %d are read at most", n.size, limit)
	}
	data := make([]byte, 0, n.size)
	for i := int64(0); int64(len(data)) < n.size; i++ {
		b, err := fs.fileBlock(n, i)
		if err != nil {
			return nil, err
		}
		data = append(data, b[:min(fs.blockSize, n.size-int64(len(data)))]...)
	}
	return data, nil
}

// fileBlock reads block i of n's file; a hole reads as zeros.
func (fs *FS) fileBlock(n *inode, i int64) ([]byte, error) {
	find := fs.mapped
	if n.flags&flagExtents != 0 {
		find = fs.extent
	}
	if err := fs.r.Budget().Step(1); err != nil {
		return nil, err
	}
	at, err := find(n, i)
	if err != nil {
		return nil, err
	}
	if at == 0 {
		return make([]byte, fs.blockSize), nil
	}
	return fs.block(at)
}

// mapped finds a file's block in the block map of ext2 and ext3: twelve blocks, then one or two levels
// of tables. The third level begins beyond the size limit of files.
func (fs *FS) mapped(n *inode, i int64) (int64, error) {
	perTable := fs.blockSize / 4
	switch {
	case i < 12:
		return int64(le32(n.where[:], int(i)*4)), nil
	case i < 12+perTable:
		return fs.lookUp(int64(le32(n.where[:], 12*4)), i-12)
	case i < 12+perTable+perTable*perTable:
		i -= 12 + perTable
		table, err := fs.lookUp(int64(le32(n.where[:], 13*4)), i/perTable)
		if err != nil {
			return 0, err
		}
		return fs.lookUp(table, i%perTable)
	}
	return 0, fmt.Errorf("block %d of a file", i)
}

// lookUp returns entry i of a table of block numbers.
func (fs *FS) lookUp(table, i int64) (int64, error) {
	if table == 0 {
		return 0, nil
	}
	if fs.tableAt != table {
		fs.tableAt = 0
		b, err := fs.block(table)
		if err != nil {
			return 0, err
		}
		fs.tableAt, fs.table = table, b
	}
	return int64(le32(fs.table, int(i*4))), nil
}

// extent finds a file's block in its extent tree.
func (fs *FS) extent(n *inode, i int64) (int64, error) {
	node := n.where[:]
	for depth := 5; depth >= 0; depth-- {
		if le16(node, 0) != 0xf30a {
			return 0, errors.New("extent node without its magic number")
		}
		entries, level := int(le16(node, 2)), le16(node, 6)
		if 12+entries*12 > len(node) {
			return 0, fmt.Errorf("extent node with %d entries", entries)
		}
		if level == 0 {
			return leaf(node, entries, i), nil
		}
		child := branch(node, entries, i)
		if child == 0 {
			return 0, nil
		}
		var err error
		if node, err = fs.block(child); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("extent tree deeper than 5")
}

// leaf returns where block i is, or 0 for a hole.
func leaf(node []byte, entries int, i int64) int64 {
	for e := range entries {
		entry := node[12+e*12:]
		first, count := int64(le32(entry, 0)), int64(le16(entry, 4))
		written := count <= 32768 // more means: allocated, reads as zeros
		if i >= first && i < first+count && written {
			return int64(le16(entry, 6))<<32 + int64(le32(entry, 8)) + i - first
		}
	}
	return 0
}

// branch returns the child node for block i, or 0.
func branch(node []byte, entries int, i int64) int64 {
	var child int64
	for e := range entries {
		entry := node[12+e*12:]
		if int64(le32(entry, 0)) > i {
			break
		}
		child = int64(le16(entry, 8))<<32 + int64(le32(entry, 4))
	}
	return child
}
