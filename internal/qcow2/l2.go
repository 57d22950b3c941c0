package qcow2

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	"github.com/decamp/decamp/internal/disk"
)

// Bits of L1 and L2 entries.
const (
	flagCompressed = 1 << 62
	flagZero       = 1 << 0
	offsetMask     = 0x00fffffffffffe00
	reservedL1     = 0x7f000000000001ff
	reservedL2     = 0x3f000000000001fe
)

// cacheBytes bounds the L2 tables kept in memory.
const cacheBytes = 4 << 20

// entryKind says how a cluster of the disk is kept.
type entryKind uint8

const (
	unallocated entryKind = iota
	zero                  // allocated or not, reads as zeros
	standard              // plain bytes at off
	compressed            // size bytes at off, raw deflate
)

// An entry is one L2 entry, understood.
type entry struct {
	kind entryKind
	off  int64 // in the file
	size int64 // of compressed data at most
}

// diskKind is what the entry means to a reader of the disk.
func (e entry) diskKind() disk.Kind {
	if e.kind == standard || e.kind == compressed {
		return disk.Data
	}
	return disk.Zero
}

// continues reports whether a cluster with entry next, distance bytes further on the
// disk, can be read together with e.
func (e entry) continues(next entry, distance int64) bool {
	if e.kind == standard {
		return next.kind == standard && next.off == e.off+distance
	}
	return e.diskKind() == disk.Zero && next.diskKind() == disk.Zero
}

// cacheSlot holds one L2 table, that of any L1 entry whose number has the slot's as its
// remainder. Readers that need two tables of one slot at the same time read them twice,
// never wrong.
type cacheSlot = atomic.Pointer[l2Table]

type l2Table struct {
	index   int64 // in L1
	entries []byte
}

func newCache(cluster int64) []cacheSlot { return make([]cacheSlot, max(cacheBytes/cluster, 1)) }

// readL1 reads as much of the L1 table as the disk needs.
func (s *Source) readL1(ctx context.Context) error {
	n := s.l1Needed()
	if n == 0 {
		return nil // a disk without a byte: its L1 offset may be anything
	}
	if s.l1Offset > s.file.Size()-n*8 {
		return corrupt("its L1 table at %#x lies outside the file of %d bytes", s.l1Offset, s.file.Size())
	}
	b := make([]byte, n*8)
	if err := s.file.ReadAt(ctx, b, s.l1Offset); err != nil {
		return err
	}
	s.l1 = make([]int64, n)
	for i := range s.l1 {
		e := binary.BigEndian.Uint64(b[i*8:])
		s.l1[i] = int64(e & offsetMask)
		if e&reservedL1 != 0 || s.l1[i] != 0 && (!s.isCluster(s.l1[i]) || s.l1[i] > s.file.Size()-s.cluster()) {
			return corrupt("L1 entry %d is %#x", i, e)
		}
	}
	return nil
}

// lookup returns the entry of the cluster that off of the disk is in.
func (s *Source) lookup(off int64) (entry, error) {
	cluster := off >> s.clusterBits
	table, err := s.table(cluster / s.l2Entries())
	if err != nil || table == nil {
		return entry{}, err
	}
	return s.parseEntry(binary.BigEndian.Uint64(table[cluster%s.l2Entries()*8:]), cluster)
}

// emptyUntil returns the end of the L2 tables that do not exist from off on; off if the
// one there does.
func (s *Source) emptyUntil(off int64) int64 {
	span := s.l2Entries() << s.clusterBits
	for i := off / span; i < int64(len(s.l1)) && s.l1[i] == 0; i++ {
		off = (i + 1) * span
	}
	return off
}

// table returns L2 table i, or nil if there is none.
func (s *Source) table(i int64) ([]byte, error) {
	if s.l1[i] == 0 {
		return nil, nil
	}
	slot := &s.cache[i%int64(len(s.cache))]
	if t := slot.Load(); t != nil && t.index == i {
		return t.entries, nil
	}
	t := &l2Table{index: i, entries: make([]byte, s.cluster())}
	if err := s.file.ReadAt(context.Background(), t.entries, s.l1[i]); err != nil {
		return nil, err
	}
	slot.Store(t)
	return t.entries, nil
}

// parseEntry makes sense of the L2 entry e of a cluster, or refuses it.
func (s *Source) parseEntry(e uint64, cluster int64) (entry, error) {
	if e&flagCompressed != 0 {
		return s.parseCompressed(e, cluster)
	}
	off := int64(e & offsetMask)
	bad := e&reservedL2 != 0 || off != 0 && !s.isCluster(off) || s.version == 2 && e&flagZero != 0
	switch {
	case bad:
		return entry{}, corrupt("L2 entry of cluster %d is %#x", cluster, e)
	case e&flagZero != 0:
		return entry{kind: zero}, nil
	case off == 0:
		return entry{kind: unallocated}, nil
	case off >= s.file.Size():
		return entry{}, corrupt("cluster %d is at %#x, after the end of the file of %d bytes: it was cut short", cluster, off, s.file.Size())
	}
	return entry{kind: standard, off: off}, nil
}

// parseCompressed splits a compressed entry: the offset takes the low bits, the number
// of further 512-byte sectors the rest; how many bits each has depends on the cluster size.
func (s *Source) parseCompressed(e uint64, cluster int64) (entry, error) {
	offBits := 62 - (s.clusterBits - 8)
	off := int64(e & (1<<offBits - 1))
	sectors := int64(e &^ (copied | flagCompressed) >> offBits)
	size := (sectors+1)*disk.SectorSize - off%disk.SectorSize
	if off < s.cluster() || off >= s.file.Size() {
		return entry{}, corrupt("compressed cluster %d is at %#x of %d bytes", cluster, off, s.file.Size())
	}
	return entry{kind: compressed, off: off, size: min(size, s.file.Size()-off)}, nil
}
