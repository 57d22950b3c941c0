package qcow2

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/decamp/decamp/internal/disk"
)

// l1Range returns where the L1 table is, in bytes of the file.
func (h *header) l1Range() disk.Range {
	return disk.Range{Off: h.l1Offset, Len: ceilDiv(int64(h.l1Entries)*8, h.cluster()) * h.cluster()}
}

func (h *header) refTableRange() disk.Range {
	return disk.Range{Off: h.refTable, Len: int64(h.refTableCount) << h.clusterBits}
}

// readL1 reads as much of the L1 table as the disk needs.
func (s *Source) readL1(ctx context.Context) error {
	n := s.l1Needed()
	if n == 0 {
		return nil // a disk without a byte: its L1 offset may be anything
	}
	if s.l1Offset > s.file.Size()-n*8 {
		return s.path.corrupt("its L1 table at %#x lies outside the file of %d bytes", s.l1Offset, s.file.Size())
	}
	if err := s.shared.takeL1(s.path, n*8); err != nil {
		return err
	}
	s.l1 = make([]int64, n)
	b := make([]byte, min(n*8, 1<<20))
	for i := int64(0); i < n; i += int64(len(b) / 8) {
		b = b[:min(int64(len(b)), (n-i)*8)]
		if err := s.file.ReadAt(ctx, b, s.l1Offset+i*8); err != nil {
			return err
		}
		if err := s.parseL1(b, i); err != nil {
			return err
		}
	}
	return s.indexTables()
}

// parseL1 takes the entries in b, of which the first is entry i.
func (s *Source) parseL1(b []byte, i int64) error {
	for ; len(b) > 0; b, i = b[8:], i+1 {
		e := binary.BigEndian.Uint64(b)
		off := int64(e & offsetMask)
		if e&reservedL1 != 0 || off != 0 && (!s.isCluster(off) || off > s.file.Size()-s.cluster()) {
			return s.path.corrupt("L1 entry %d is %#x", i, e)
		}
		s.l1[i] = off
	}
	return nil
}

// indexTables makes the sorted list of L2 tables and refuses one that is used twice or
// lies in another table: no tool makes that, and its disk would be read for ever.
func (s *Source) indexTables() error {
	for _, off := range s.l1 {
		if off != 0 {
			s.tables = append(s.tables, off)
		}
	}
	slices.Sort(s.tables)
	for i, off := range s.tables {
		if s.inFixedTable(off) || i > 0 && off == s.tables[i-1] {
			return s.path.corrupt("the L2 table at %#x overlaps another table", off)
		}
	}
	return nil
}

// inTable reports whether the cluster of the file that off is in holds a table, and so
// none of the disk's bytes.
func (s *Source) inTable(off int64) bool {
	_, found := slices.BinarySearch(s.tables, off&^(s.cluster()-1))
	return found || s.inFixedTable(off)
}

func (s *Source) inFixedTable(off int64) bool {
	at := disk.Range{Off: off, Len: 1}
	return !at.Intersect(s.l1Range()).Empty() || !at.Intersect(s.refTableRange()).Empty()
}
