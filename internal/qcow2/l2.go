package qcow2

import (
	"context"
	"encoding/binary"
	"sync/atomic"
)

const (
	// cacheBytes bounds the slices of L2 tables that one image keeps in memory,
	// chainCacheBytes those of all images of a chain.
	cacheBytes      = 4 << 20
	chainCacheBytes = 16 << 20

	// maxSlice is the most of a table that is read at once: all of it with clusters of
	// 64 KiB, 1/32 of it with 2 MiB, where one table maps 512 GiB.
	maxSlice = 64 << 10
)

// cacheSlot holds one slice of an L2 table. Readers that need two slices of one slot at the
// same time read them twice, never wrong.
type cacheSlot = atomic.Pointer[l2Slice]

type l2Slice struct {
	at   int64 // in the file
	data []byte
}

// sliceSize returns the bytes of a slice.
func (h *header) sliceSize() int64 { return min(h.cluster(), maxSlice) }

func (h *header) newCache() []cacheSlot { return make([]cacheSlot, cacheBytes/h.sliceSize()) }

// shrinkCache leaves the image its share of a chain of n files: one slice at least.
func (s *Source) shrinkCache(n int) {
	share := max(chainCacheBytes/int64(n)/s.sliceSize(), 1)
	s.cache = s.cache[:min(int64(len(s.cache)), share)]
}

// lookup returns the entry of the grain that off of the disk is in.
func (s *Source) lookup(ctx context.Context, off int64) (entry, error) {
	cluster := off >> s.clusterBits
	table := s.l1[cluster/s.l2Entries()]
	if table == 0 {
		return entry{}, nil
	}
	at := table + cluster%s.l2Entries()*s.entrySize()
	slice, err := s.slice(ctx, at&^(s.sliceSize()-1), cluster*s.entrySize()/s.sliceSize())
	if err != nil {
		return entry{}, err
	}
	word := slice[at&(s.sliceSize()-1):]
	e := binary.BigEndian.Uint64(word)
	if s.extendedL2 {
		sub := int(off & (s.cluster() - 1) / s.grain())
		return s.parseExtended(e, binary.BigEndian.Uint64(word[8:]), cluster, sub)
	}
	return s.parseEntry(e, cluster)
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

// slice returns the slice of an L2 table that is at that offset of the file and has that
// number among all slices of the disk.
func (s *Source) slice(ctx context.Context, at, number int64) ([]byte, error) {
	slot := &s.cache[number%int64(len(s.cache))]
	if c := slot.Load(); c != nil && c.at == at {
		return c.data, nil
	}
	c := &l2Slice{at: at, data: make([]byte, s.sliceSize())}
	if err := s.file.ReadAt(ctx, c.data, at); err != nil {
		return nil, err
	}
	slot.Store(c)
	return c.data, nil
}
