package extwrite

import (
	"sort"

	"github.com/decamp/decamp/internal/fault"
)

// A mapping contains the blocks of a file, and the blocks that store the mapping itself.
type mapping struct {
	runs   []run   // runs in the order of the file, without overlap; gaps are holes
	tables []int64 // disk blocks of the extent tree or of the block map's tables
}

// countBlocks returns the number of disk blocks in use: data and tables.
func (m *mapping) countBlocks() (n int64) {
	for _, r := range m.runs {
		n += r.n
	}
	return n + int64(len(m.tables))
}

// end returns the number of the file block after the last run; 0 if there are no runs.
func (m *mapping) end() int64 {
	if len(m.runs) == 0 {
		return 0
	}
	return m.runs[len(m.runs)-1].end()
}

// goalBlock returns the preferred disk block for the next block of the file: the block after the last
// one, or the group of inode num for an empty file.
func (m *mapping) goalBlock(s *super, num uint32) int64 {
	if len(m.runs) == 0 {
		return s.firstBlock + int64((num-1)/s.inodesPerGroup)*s.blocksPerGroup
	}
	last := m.runs[len(m.runs)-1]
	return last.disk + last.n
}

// runIndex returns the index of the first run that ends after a file block; len(m.runs) if there is
// none.
func (m *mapping) runIndex(block int64) int {
	return sort.Search(len(m.runs), func(i int) bool { return m.runs[i].end() > block })
}

// diskBlock returns the disk block of a file block. It returns 0 for holes and unwritten blocks, which
// read as zeros.
func (m *mapping) diskBlock(block int64) int64 {
	i := m.runIndex(block)
	if i == len(m.runs) || m.runs[i].file > block || m.runs[i].unwritten {
		return 0
	}
	return m.runs[i].disk + block - m.runs[i].file
}

// hasBlockIn reports whether the file has a block in the range from first to end, end excluded.
func (m *mapping) hasBlockIn(first, end int64) bool {
	i := m.runIndex(first)
	return i < len(m.runs) && m.runs[i].file < end
}

// addRun appends a run and merges it with the last run if both are contiguous. It fails if the run
// overlaps the last one or if the file has more than maxRuns runs.
func (m *mapping) addRun(r run) error {
	if last := len(m.runs) - 1; last >= 0 {
		l := &m.runs[last]
		// Runs must be sorted; diskBlock searches them.
		if r.file < l.end() {
			return corrupt("block %d of a file occurs twice", r.file)
		}
		if l.end() == r.file && l.disk+l.n == r.disk && l.unwritten == r.unwritten {
			l.n += r.n
			return nil
		}
	}
	if len(m.runs) >= maxRuns {
		return fault.New(fault.Unsupported, "it is in more than %d pieces", maxRuns)
	}
	m.runs = append(m.runs, r)
	return nil
}

// mappings reads and writes the mappings of files, as extent trees or as block maps, and
// allocates the blocks that they refer to.
type mappings struct {
	super *super     // geometry of the file system
	stage *stage     // blocks of tables and data
	alloc *allocator // allocator for tables and data
}

// extendFile allocates n blocks at the end of the mapping. It changes m but does not store it. num
// is the inode, for the preferred location.
func (ms *mappings) extendFile(num uint32, m *mapping, n int64) error {
	runs, err := ms.alloc.allocateBlocks(m.goalBlock(ms.super, num), n)
	if err != nil {
		return err
	}
	for _, r := range runs {
		r.file = m.end()
		if err := m.addRun(r); err != nil {
			return err
		}
	}
	return nil
}

// readMapping returns the mapping of a file. It fails if a run is outside the file system.
func (ms *mappings) readMapping(n inode) (*mapping, error) {
	m := &mapping{}
	read := ms.readBlockMap
	if n.flags()&flagExtents != 0 {
		read = ms.readExtents
	}
	if err := read(n, m); err != nil {
		return nil, err
	}
	// addRun has checked the order within the file; the blocks must also exist.
	for _, r := range m.runs {
		if r.disk <= ms.super.firstBlock || r.n <= 0 || r.disk > ms.super.blocks-r.n {
			return nil, corrupt("a file has blocks %d to %d of %d", r.disk, r.disk+r.n, ms.super.blocks)
		}
	}
	return m, nil
}

// writeMapping stores m in n. It frees all old tables and writes new ones. The caller must write n.
func (ms *mappings) writeMapping(n inode, m *mapping) error {
	for _, t := range m.tables {
		if err := ms.alloc.freeBlocks(t, 1); err != nil {
			return err
		}
	}
	m.tables = nil
	put := ms.putBlockMap
	if n.flags()&flagExtents != 0 {
		put = ms.putExtents
	}
	// The mapping may become smaller, and unused entries must be zero.
	clear(n.blockArea())
	if err := put(n, m); err != nil {
		return err
	}
	n.setBlocks(m.countBlocks(), ms.super.blockSize)
	return nil
}

// newTable allocates a block for a tree node or a table, adds it to m.tables, and returns its zeroed
// bytes for editing.
func (ms *mappings) newTable(n inode, m *mapping) (at int64, b []byte, err error) {
	runs, err := ms.alloc.allocateBlocks(m.goalBlock(ms.super, n.num), 1)
	if err != nil {
		return 0, nil, err
	}
	m.tables = append(m.tables, runs[0].disk)
	b, err = ms.stage.zeroBlock(runs[0].disk)
	return runs[0].disk, b, err
}

// checkSize fails if a file exceeds maxStaged bytes.
func checkSize(n inode) error {
	if n.size() > maxStaged {
		return fault.New(fault.Unsupported, "it has %d bytes", n.size())
	}
	return nil
}

// readContent returns the content of a file of at most maxStaged bytes, with room for more bytes; holes are
// zeros.
func (ms *mappings) readContent(n inode, more int) ([]byte, error) {
	m, err := ms.readMapping(n)
	if err != nil {
		return nil, err
	}
	if err := checkSize(n); err != nil {
		return nil, err
	}
	if err := ms.stage.disk.Budget().Step(n.size() >> 12); err != nil {
		return nil, err
	}
	data := make([]byte, n.size(), n.size()+int64(more))
	for _, r := range m.runs {
		for i := int64(0); i < r.n && !r.unwritten && (r.file+i)*ms.super.blockSize < n.size(); i++ {
			b, err := ms.stage.readBlock(r.disk + i)
			if err != nil {
				return nil, err
			}
			copy(data[(r.file+i)*ms.super.blockSize:], b)
		}
	}
	return data, nil
}
