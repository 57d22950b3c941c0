package extwrite

import "github.com/decamp/decamp/internal/fault"

// direct is how many blocks of a file the inode itself names, before tables of one, two
// and three levels do: the block map of ext2 and ext3.
const direct = 12

// readBlockMap reads a block map.
func (ms *mappings) readBlockMap(n inode, m *mapping) error {
	at := int64(0)
	for i := range direct {
		if err := m.addBlock(at, int64(le32(n.where(), i*4))); err != nil {
			return err
		}
		at++
	}
	for level := range 3 {
		var err error
		if at, err = ms.readTable(n, m, int64(le32(n.where(), (direct+level)*4)), level, at); err != nil {
			return err
		}
	}
	return nil
}

// addBlock adds one block of the file, unless it is a hole.
func (m *mapping) addBlock(file, disk int64) error {
	if disk == 0 {
		return nil
	}
	return m.add(run{file: file, disk: disk, n: 1})
}

// readTable reads a table that begins with the file's block at, and returns the first one
// after it.
func (ms *mappings) readTable(n inode, m *mapping, table int64, level int, at int64) (int64, error) {
	span := ms.super.span(level)
	if table == 0 {
		return at + span*(ms.super.blockSize/4), nil
	}
	if len(m.tables) >= maxRuns {
		return 0, corrupt("inode %d has a block map without end", n.num)
	}
	b, err := ms.stage.read(table)
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

// span is how many blocks of a file an entry of a table stands for.
func (s *super) span(level int) int64 {
	n := int64(1)
	for range level {
		n *= s.blockSize / 4
	}
	return n
}

// putBlockMap writes a block map.
func (ms *mappings) putBlockMap(n inode, m *mapping) error {
	if err := ms.super.checkBlockMap(m); err != nil {
		return err
	}
	for i := range direct {
		put32(n.where(), i*4, uint32(m.find(int64(i))))
	}
	at := int64(direct)
	for level := range 3 {
		table, err := ms.putTable(n, m, level, at)
		if err != nil {
			return err
		}
		put32(n.where(), (direct+level)*4, uint32(table))
		at += ms.super.span(level + 1)
	}
	return nil
}

// checkBlockMap refuses what four bytes for a block cannot say.
func (s *super) checkBlockMap(m *mapping) error {
	for _, r := range m.runs {
		if r.disk+r.n > 1<<32 {
			return fault.New(fault.Full, "no room is left where files without extents may be")
		}
	}
	if m.end() > direct+s.span(1)+s.span(2)+s.span(3) {
		return fault.New(fault.Unsupported, "it is too large for a file without extents")
	}
	return nil
}

// putTable writes the table for the file's blocks from at on; 0 marks blocks without data.
func (ms *mappings) putTable(n inode, m *mapping, level int, at int64) (int64, error) {
	span := ms.super.span(level)
	if !m.any(at, at+span*(ms.super.blockSize/4)) {
		return 0, nil
	}
	table, b, err := ms.newTable(n, m)
	if err != nil {
		return 0, err
	}
	for i := range ms.super.blockSize / 4 {
		entry := int64(0)
		if level == 0 {
			entry = m.find(at + i)
		} else if entry, err = ms.putTable(n, m, level-1, at+i*span); err != nil {
			return 0, err
		}
		put32(b, int(i)*4, uint32(entry))
	}
	return table, nil
}
