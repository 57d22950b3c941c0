package ext

import (
	"errors"
	"fmt"
)

const (
	modeMask = 0xf000 // bits of the mode that contain the type
	modeDir  = 0x4000 // folder
	modeFile = 0x8000 // regular file
	modeLink = 0xa000 // symbolic link

	flagExtents = 0x80000    // the block area contains an extent tree
	flagInline  = 0x10000000 // the content is in the inode
	flagCrypt   = 0x800      // the content is encrypted
)

// An inode contains the fields of an inode that this package requires.
type inode struct {
	mode      uint16   // type and permissions
	flags     uint32   // flagExtents and others
	size      int64    // size in bytes
	blockArea [60]byte // i_block: block map, root of the extent tree, or target of a short link
}

// hasType reports whether the type bits of the mode are mode.
func (n *inode) hasType(mode uint16) bool { return n.mode&modeMask == mode }

// readInode reads inode num. It fails if the file is of a kind that is not supported.
func (fs *FS) readInode(num uint32) (*inode, error) {
	if num == 0 || num > fs.inodes {
		return nil, fmt.Errorf("inode %d of %d", num, fs.inodes)
	}
	// Inode numbers start at 1.
	group, index := int64((num-1)/fs.inodesPerGroup), int64((num-1)%fs.inodesPerGroup)
	desc := make([]byte, fs.descSize)
	// The descriptors follow the superblock; offset 8 of each is the block of the inode table.
	at := (fs.firstBlock+1)*fs.blockSize + group*fs.descSize
	if err := fs.readAt(desc, at/fs.blockSize, at%fs.blockSize); err != nil {
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
	if err := fs.readAt(raw, table+at/fs.blockSize, at%fs.blockSize); err != nil {
		return nil, fmt.Errorf("inode %d: %w", num, err)
	}
	// Offsets in an inode: 0 mode, 4 and 0x6c size, 0x20 flags, 0x28 block area.
	n := &inode{mode: le16(raw, 0), flags: le32(raw, 0x20), size: int64(le32(raw, 0x4))}
	// Only files have the high half of the size here; folders are limited by maxDir anyway.
	if n.hasType(modeFile) {
		n.size |= int64(le32(raw, 0x6c)) << 32
	}
	copy(n.blockArea[:], raw[0x28:])
	return n, n.checkFlags()
}

// checkFlags fails if the content is encrypted, stored in the inode, or of negative size.
func (n *inode) checkFlags() error {
	switch {
	case n.flags&flagCrypt != 0:
		return errors.New("the file is encrypted")
	case n.flags&flagInline != 0:
		return errors.New("feature inline_data is not supported")
	case n.size < 0:
		return fmt.Errorf("a file of %d bytes", n.size)
	}
	return nil
}

// readContent returns the content of a file of at most limit bytes, block by block.
func (fs *FS) readContent(n *inode, limit int64) ([]byte, error) {
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

// fileBlock returns block i of a file; a hole is zeros.
func (fs *FS) fileBlock(n *inode, i int64) ([]byte, error) {
	// ext4 may contain files of both formats.
	find := fs.mappedBlock
	if n.flags&flagExtents != 0 {
		find = fs.extentBlock
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
	return fs.readBlock(at)
}

// mappedBlock returns the disk block of file block i according to the block map of ext2 and ext3:
// twelve blocks, then tables of one and two levels. The third level begins beyond the size limit of
// files. A hole is 0.
func (fs *FS) mappedBlock(n *inode, i int64) (int64, error) {
	// Block numbers in tables have four bytes.
	perTable := fs.blockSize / 4
	switch {
	case i < 12:
		return int64(le32(n.blockArea[:], int(i)*4)), nil
	case i < 12+perTable:
		return fs.tableEntry(int64(le32(n.blockArea[:], 12*4)), i-12)
	case i < 12+perTable+perTable*perTable:
		i -= 12 + perTable
		table, err := fs.tableEntry(int64(le32(n.blockArea[:], 13*4)), i/perTable)
		if err != nil {
			return 0, err
		}
		return fs.tableEntry(table, i%perTable)
	}
	return 0, fmt.Errorf("block %d of a file", i)
}

// tableEntry returns entry i of a table of block numbers. Table 0 is a hole. The last table is cached,
// because reads are mostly sequential.
func (fs *FS) tableEntry(table, i int64) (int64, error) {
	if table == 0 {
		return 0, nil
	}
	// The cached table is invalid while the next one is read, in case that fails.
	if fs.tableBlock != table {
		fs.tableBlock = 0
		b, err := fs.readBlock(table)
		if err != nil {
			return 0, err
		}
		fs.tableBlock, fs.table = table, b
	}
	return int64(le32(fs.table, int(i*4))), nil
}

// extentBlock returns the disk block of file block i according to the extent tree; 0 for a hole.
func (fs *FS) extentBlock(n *inode, i int64) (int64, error) {
	node := n.blockArea[:]
	// The kernel allows five levels above the leaves; the limit also ends loops.
	for depth := 5; depth >= 0; depth-- {
		if le16(node, 0) != 0xf30a {
			return 0, errors.New("extent node without its magic number")
		}
		// Node header: magic, entries, maximum, level, generation.
		entries, level := int(le16(node, 2)), le16(node, 6)
		if 12+entries*12 > len(node) {
			return 0, fmt.Errorf("extent node with %d entries", entries)
		}
		if level == 0 {
			return leafBlock(node, entries, i), nil
		}
		child := childBlock(node, entries, i)
		if child == 0 {
			return 0, nil
		}
		var err error
		if node, err = fs.readBlock(child); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("extent tree deeper than 5")
}

// leafBlock returns the disk block of file block i in a leaf; 0 for a hole or an unwritten extent.
func leafBlock(node []byte, entries int, i int64) int64 {
	for e := range entries {
		entry := node[12+e*12:]
		// Leaf entry: 32-bit file block, 16-bit length, 48-bit disk block.
		first, count := int64(le32(entry, 0)), int64(le16(entry, 4))
		written := count <= 32768 // a higher count marks an unwritten extent
		if i >= first && i < first+count && written {
			return int64(le16(entry, 6))<<32 + int64(le32(entry, 8)) + i - first
		}
	}
	return 0
}

// childBlock returns the block of the child node for file block i; 0 if none exists.
func childBlock(node []byte, entries int, i int64) int64 {
	var child int64
	for e := range entries {
		entry := node[12+e*12:]
		// Entries are sorted, so the child is the last one that begins before i.
		if int64(le32(entry, 0)) > i {
			break
		}
		child = int64(le16(entry, 8))<<32 + int64(le32(entry, 4))
	}
	return child
}
