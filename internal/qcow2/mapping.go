package qcow2

import (
	"context"
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/decamp/decamp/internal/disk"
)

const (
	// largest size of the cached slices of L2 tables of one image, in bytes
	cacheBytes      = 4 << 20
	chainCacheBytes = 16 << 20 // largest size of the cached slices of all images of a chain, in bytes

	// largest part of a table that one read fetches, in bytes. It is a whole table for clusters of 64 KiB,
	// and 1/32 of a table for clusters of 2 MiB, whose tables map 512 GiB each.
	maxSlice = 64 << 10
)

// A cacheSlot holds one slice of an L2 table; nil if it is empty. Two readers that need different
// slices of one slot read them twice, but never a wrong one.
type cacheSlot = atomic.Pointer[cachedSlice]

// A cachedSlice is a slice of an L2 table. It does not change.
type cachedSlice struct {
	at   int64  // offset in the file
	data []byte // entries in the format of the file
}

// sliceSize returns the size of a slice in bytes.
func (h *header) sliceSize() int64 { return min(h.clusterBytes(), maxSlice) }

// newCache returns empty slots for cacheBytes bytes of slices.
func (h *header) newCache() []cacheSlot { return make([]cacheSlot, cacheBytes/h.sliceSize()) }

// A mapping locates the clusters of the disk in the file. It reads the L1 table when the image is
// opened, and parts of L2 tables when they are needed. It is safe for concurrent use: the L1 table does
// not change, and the slots of the cache are atomic.
type mapping struct {
	*header
	path   filePath    // path for errors
	file   disk.Source // content of the image file
	l1     []int64     // offset of each L2 table; 0 without one
	tables []int64     // the same without zeros, sorted
	cache  []cacheSlot // slots by slice number modulo their count
}

// readL1 reads the part of the L1 table that the disk needs, and checks it. share limits the size of
// all L1 tables of a chain.
func (m *mapping) readL1(ctx context.Context, share *shared) error {
	n := m.l1Needed()
	if n == 0 {
		return nil // a disk without a byte: its L1 offset may be anything
	}
	if m.l1Offset > m.file.Size()-n*8 {
		return m.path.corrupt("its L1 table at %#x lies outside the file of %d bytes", m.l1Offset, m.file.Size())
	}
	if err := share.countL1(m.path, n*8); err != nil {
		return err
	}
	m.l1 = make([]int64, n)
	b := make([]byte, min(n*8, 1<<20))
	for i := int64(0); i < n; i += int64(len(b) / 8) {
		b = b[:min(int64(len(b)), (n-i)*8)]
		if err := m.file.ReadAt(ctx, b, m.l1Offset+i*8); err != nil {
			return err
		}
		if err := m.parseL1(b, i); err != nil {
			return err
		}
	}
	return m.indexTables()
}

// parseL1 parses the L1 entries in b; the first is entry i. An L2 table outside the file is
// fault.Corrupt.
func (m *mapping) parseL1(b []byte, i int64) error {
	for ; len(b) > 0; b, i = b[8:], i+1 {
		e := binary.BigEndian.Uint64(b)
		off := int64(e & offsetMask)
		if e&reservedL1 != 0 || off != 0 && (!m.isCluster(off) || off > m.file.Size()-m.clusterBytes()) {
			return m.path.corrupt("L1 entry %d is %#x", i, e)
		}
		m.l1[i] = off
	}
	return nil
}

// indexTables builds the sorted list of L2 tables. A table that is used twice or overlaps another table
// is fault.Corrupt: no tool writes that, and reading the disk could take for ever.
func (m *mapping) indexTables() error {
	for _, off := range m.l1 {
		if off != 0 {
			m.tables = append(m.tables, off)
		}
	}
	slices.Sort(m.tables)
	for i, off := range m.tables {
		if m.inFixedTable(off) || i > 0 && off == m.tables[i-1] {
			return m.path.corrupt("the L2 table at %#x overlaps another table", off)
		}
	}
	return nil
}

// inTable reports whether the cluster of the file that contains off is a table.
func (m *mapping) inTable(off int64) bool {
	_, found := slices.BinarySearch(m.tables, off&^(m.clusterBytes()-1))
	return found || m.inFixedTable(off)
}

// inFixedTable reports whether off is in the L1 table or the refcount table.
func (m *mapping) inFixedTable(off int64) bool {
	at := disk.Range{Off: off, Len: 1}
	return !at.Intersect(m.l1Range()).Empty() || !at.Intersect(m.refTableRange()).Empty()
}

// shrinkCache reduces the cache to the share of one image in a chain of n files, but at least one
// slice. It must be called before the image is read.
func (m *mapping) shrinkCache(n int) {
	share := max(chainCacheBytes/int64(n)/m.sliceSize(), 1)
	m.cache = m.cache[:min(int64(len(m.cache)), share)]
}

// lookup returns the entry of the grain that contains off of the disk.
func (m *mapping) lookup(ctx context.Context, off int64) (entry, error) {
	cluster := off >> m.clusterBits
	table := m.l1[cluster/m.l2Entries()]
	if table == 0 {
		return entry{}, nil
	}
	at := table + cluster%m.l2Entries()*m.entrySize()
	slice, err := m.l2Slice(ctx, at&^(m.sliceSize()-1), cluster*m.entrySize()/m.sliceSize())
	if err != nil {
		return entry{}, err
	}
	word := slice[at&(m.sliceSize()-1):]
	e := binary.BigEndian.Uint64(word)
	if m.extendedL2 {
		sub := int(off & (m.clusterBytes() - 1) / m.grainBytes())
		return m.parseExtended(e, binary.BigEndian.Uint64(word[8:]), cluster, sub)
	}
	return m.parseEntry(e, cluster)
}

// emptyUntil returns the first offset from off on whose L2 table exists, or the end of the L1 table.
// The result is off if its own table exists.
func (m *mapping) emptyUntil(off int64) int64 {
	span := m.l2Entries() << m.clusterBits
	for i := off / span; i < int64(len(m.l1)) && m.l1[i] == 0; i++ {
		off = (i + 1) * span
	}
	return off
}

// l2Slice returns the slice of an L2 table at an offset of the file. number is its index among all
// slices of the disk and selects the slot. The result must not be changed.
func (m *mapping) l2Slice(ctx context.Context, at, number int64) ([]byte, error) {
	slot := &m.cache[number%int64(len(m.cache))]
	if c := slot.Load(); c != nil && c.at == at {
		return c.data, nil
	}
	c := &cachedSlice{at: at, data: make([]byte, m.sliceSize())}
	if err := m.file.ReadAt(ctx, c.data, at); err != nil {
		return nil, err
	}
	slot.Store(c)
	return c.data, nil
}

// emptyAfter returns the end of the range with entry e. end is the end of its grain. If e is
// unallocated, the range includes all following L2 tables that do not exist.
func (m *mapping) emptyAfter(end int64, e entry) int64 {
	if e.kind == unallocated {
		return max(end, m.emptyUntil(end))
	}
	return end
}
