package extwrite

import "github.com/decamp/decamp/internal/fault"

// directBlocks is the number of blocks that an inode with a block map (ext2, ext3) refers to
// directly. Three more words refer to tables of one, two and three levels.
const directBlocks = 12

// readBlockMap adds the runs and tables of an inode with a block map to m.
func (ms *mappings) readBlockMap(n inode, m *mapping) error {
	// at is the number of the next file block.
	at := int64(0)
	for i := range directBlocks {
		if err := m.addBlock(at, int64(le32(n.blockArea(), i*4))); err != nil {
			return err
		}
		at++
	}
	for level := range 3 {
		var err error
		if at, err = ms.readTable(n, m, int64(le32(n.blockArea(), (directBlocks+level)*4)), level, at); err != nil {
			return err
		}
	}
	return nil
}

// addBlock appends one block to the mapping. A disk block of 0 is a hole and adds nothing.
func (m *mapping) addBlock(file, disk int64) error {
	if disk == 0 {
		return nil
	}
	return m.addRun(run{file: file, disk: disk, n: 1})
}

// readTable adds the blocks of one table to m. Level 0 refers to data, higher levels to tables.
// The table begins with the file's block at; readTable returns the first block after the table.
// Table 0 is a hole. The number of tables is limited by maxRuns.
func (ms *mappings) readTable(n inode, m *mapping, table int64, level int, at int64) (int64, error) {
	span := ms.super.blocksPerEntry(level)
	if table == 0 {
		return at + span*(ms.super.blockSize/4), nil
	}
	// A table that refers to itself would not end.
	if len(m.tables) >= maxRuns {
		return 0, corrupt("inode %d has a block map without end", n.num)
	}
	b, err := ms.stage.readBlock(table)
	if err != nil {
		return 0, err
	}
	m.tables = append(m.tables, table)
	for i := range int(ms.super.blockSize / 4) {
		entry := int64(le32(b, i*4))
		if level == 0 {
			err = m.addBlock(at, entry)
			at++
		} else {
			at, err = ms.readTable(n, m, entry, level-1, at)
		}
		if err != nil {
			return 0, err
		}
	}
	return at, nil
}

// blocksPerEntry returns the number of file blocks that one entry of a table at the level covers.
func (s *super) blocksPerEntry(level int) int64 {
	n := int64(1)
	for range level {
		n *= s.blockSize / 4
	}
	return n
}

// putBlockMap writes m as a block map into n and new tables. It appends the tables to m.tables.
func (ms *mappings) putBlockMap(n inode, m *mapping) error {
	if err := ms.super.checkBlockMap(m); err != nil {
		return err
	}
	for i := range directBlocks {
		put32(n.blockArea(), i*4, uint32(m.diskBlock(int64(i))))
	}
	// Tables of one, two and three levels follow the direct blocks.
	at := int64(directBlocks)
	for level := range 3 {
		table, err := ms.putTable(n, m, level, at)
		if err != nil {
			return err
		}
		put32(n.blockArea(), (directBlocks+level)*4, uint32(table))
		at += ms.super.blocksPerEntry(level + 1)
	}
	return nil
}

// checkBlockMap fails if the mapping does not fit a block map: block numbers have 32 bits, and
// three levels limit the size of the file.
func (s *super) checkBlockMap(m *mapping) error {
	for _, r := range m.runs {
		if r.disk+r.n > 1<<32 {
			return fault.New(fault.Full, "no free blocks below 2^32, which files without extents require")
		}
	}
	if m.end() > directBlocks+s.blocksPerEntry(1)+s.blocksPerEntry(2)+s.blocksPerEntry(3) {
		return fault.New(fault.Unsupported, "it is too large for a file without extents")
	}
	return nil
}

// putTable writes the table for the file's blocks from at on and returns its disk block. It
// returns 0 if the file has no blocks there.
func (ms *mappings) putTable(n inode, m *mapping, level int, at int64) (int64, error) {
	span := ms.super.blocksPerEntry(level)
	if !m.hasBlockIn(at, at+span*(ms.super.blockSize/4)) {
		return 0, nil
	}
	table, b, err := ms.newTable(n, m)
	if err != nil {
		return 0, err
	}
	for i := range ms.super.blockSize / 4 {
		entry := int64(0)
		if level == 0 {
			entry = m.diskBlock(at + i)
		} else if entry, err = ms.putTable(n, m, level-1, at+i*span); err != nil {
			return 0, err
		}
		put32(b, int(i)*4, uint32(entry))
	}
	return table, nil
}
