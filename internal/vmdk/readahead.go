package vmdk

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
)

const (
	// size in bytes of the segments of a file that are read ahead as a whole. Segments are larger in files
	// of more than 256 GiB, so that a file has at most aheadSegments of them.
	aheadSegment  = 4 << 20
	aheadSegments = 1 << 16 // largest number of segments of a file; each has a counter of 4 bytes

	// number of bytes of a segment that can be read in the time of one seek. A segment is read ahead after
	// aheadSegment/aheadEvery small reads.
	aheadEvery = 512 << 10
)

// A readAhead replaces many small reads by large ones. A delta whose grains are in the order of their
// writes is read at random positions, one grain at a time. On a cold disk this takes a hundred times as
// long as reading the whole file. Therefore a segment with many small reads is fetched as a whole,
// once. Files with few reads are not affected, and no segment is fetched twice. It is safe for
// concurrent use.
type readAhead struct {
	prefetch func(disk.Range) // starts to read a range of the file into the page cache, without waiting
	segment  int64            // size of a segment in bytes
	small    []atomic.Uint32  // number of small reads of each segment so far
}

// A prefetcher is a file that the kernel can read ahead. Only local files implement it.
type prefetcher interface {
	prefetch(disk.Range) // prefetch starts to read a range without waiting for it.
}

// newAhead returns the read-ahead of src, or nil if src cannot be read ahead.
func newAhead(src disk.Source) *readAhead {
	f, ok := src.(prefetcher)
	if !ok {
		return nil
	}
	segment := max(aheadSegment, src.Size()/aheadSegments+1)
	return &readAhead{prefetch: f.prefetch, segment: segment, small: make([]atomic.Uint32, src.Size()/segment+1)}
}

// countRead counts a read at offset at that is shorter than aloneSize. When its segment has had enough
// of them, countRead prefetches the segment. A nil receiver does nothing.
func (a *readAhead) countRead(at int64) {
	if a == nil {
		return
	}
	n := at / a.segment
	if a.small[n].Add(1) == uint32(a.segment/aheadEvery) {
		a.prefetch(disk.Range{Off: n * a.segment, Len: a.segment})
	}
}

// prefetch advises the kernel to read r into the page cache. An error only costs time and is ignored.
func (f *localFile) prefetch(r disk.Range) {
	_ = unix.Fadvise(int(f.Fd()), r.Off, r.Len, unix.FADV_WILLNEED)
}
