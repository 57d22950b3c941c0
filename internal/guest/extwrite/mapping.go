package extwrite

import (
	"sort"

	"github.com/decamp/decamp/internal/fault"
)

// A mapping has the blocks of a file, and the blocks that store their numbers.
type mapping struct {
	runs   []run // runs in the order of the file
	tables []int64
}

// blocks counts the blocks of the disk that a mapping takes.
func (m *mapping) blocks() (n int64) {
	for _, r := range m.runs {
		n += r.n
	}
	return n + int64(len(m.tables))
}

// end is the first block of the file after the last one there is.
func (m *mapping) end() int64 {
	if len(m.runs) == 0 {
		return 0
	}
	return m.runs[len(m.runs)-1].end()
}

// goal is where the file would best go on.
func (m *mapping) goal(s *super, num uint32) int64 {
	if len(m.runs) == 0 {
		return s.firstBlock + int64((num-1)/s.inodesPerGroup)*s.blocksPerGroup
	}
	last := m.runs[len(m.runs)-1]
	return last.disk + last.n
}

// at returns the index of the first run that ends after a block of the file.
func (m *mapping) at(block int64) int {
	return sort.Search(len(m.runs), func(i int) bool { return m.runs[i].end() > block })
}

// find returns where a block of the file is; 0 is one that reads as zeros.
func (m *mapping) find(block int64) int64 {
	i := m.at(block)
	if i == len(m.runs) || m.runs[i].file > block || m.runs[i].unwritten {
		return 0
	}
	return m.runs[i].disk + block - m.runs[i].file
}

// any reports whether the file has a block from first up to end.
func (m *mapping) any(first, end int64) bool {
	i := m.at(first)
	return i < len(m.runs) && m.runs[i].file < end
}

// add puts a run at the file's end, joined to the last one where they are neighbours.
func (m *mapping) add(r run) error {
	if last := len(m.runs) - 1; last >= 0 {
		l := &m.runs[last]
		if r.file < l.end() {
			return corrupt("block %d of a file comes twice", r.file)
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
	super *super
	stage *stage
	alloc *allocator
}

// extend adds n blocks to the end of a file that has no hole there.
func (ms *mappings) extend(num uint32, m *mapping, n int64) error {
	runs, err := ms.alloc.allocate(m.goal(ms.super, num), n)
	if err != nil {
		return err
	}
	for _, r := range runs {
		r.file = m.end()
		if err := m.add(r); err != nil {
			return err
		}
	}
	return nil
}

// mapping reads where a file is.
func (ms *mappings) read(n inode) (*mapping, error) {
	m := &mapping{}
	read := ms.readBlockMap
	if n.flags()&flagExtents != 0 {
		read = ms.readExtents
	}
	if err := read(n, m); err != nil {
		return nil, err
	}
	for _, r := range m.runs {
		if r.disk <= ms.super.firstBlock || r.n <= 0 || r.disk > ms.super.blocks-r.n {
			return nil, corrupt("a file has blocks %d to %d of %d", r.disk, r.disk+r.n, ms.super.blocks)
		}
	}
	return m, nil
}

// write makes m the mapping of n. All tables are written again: there are few.
func (ms *mappings) write(n inode, m *mapping) error {
	for _, t := range m.tables {
		if err := ms.alloc.free(t, 1); err != nil {
			return err
		}
	}
	m.tables = nil
	put := ms.putBlockMap
	if n.flags()&flagExtents != 0 {
		put = ms.putExtents
	}
	clear(n.where())
	if err := put(n, m); err != nil {
		return err
	}
	n.setBlocks(m.blocks(), ms.super.blockSize)
	return nil
}

// newTable takes a block for a part of a mapping.
func (ms *mappings) newTable(n inode, m *mapping) (at int64, b []byte, err error) {
	runs, err := ms.alloc.allocate(m.goal(ms.super, n.num), 1)
	if err != nil {
		return 0, nil, err
	}
	m.tables = append(m.tables, runs[0].disk)
	b, err = ms.stage.blank(runs[0].disk)
	return runs[0].disk, b, err
}

// content reads a whole file; holes are zeros.
func (ms *mappings) content(n inode) ([]byte, error) {
	m, err := ms.read(n)
	if err != nil {
		return nil, err
	}
	if n.size() > maxStaged {
		return nil, fault.New(fault.Unsupported, "it has %d bytes", n.size())
	}
	if err := ms.stage.disk.Budget().Step(n.size() >> 12); err != nil {
		return nil, err
	}
	data := make([]byte, n.size())
	for _, r := range m.runs {
		for i := int64(0); i < r.n && !r.unwritten && (r.file+i)*ms.super.blockSize < n.size(); i++ {
			b, err := ms.stage.read(r.disk + i)
			if err != nil {
				return nil, err
			}
			copy(data[(r.file+i)*ms.super.blockSize:], b)
		}
	}
	return data, nil
}
