package vmdk

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
)

const (
	// aheadSegment is how much of a file is read ahead at once, where its small reads
	// are many; larger in files of more than 256 GiB, so that a file has at most
	// aheadSegments of them.
	aheadSegment  = 4 << 20
	aheadSegments = 1 << 16

	// aheadEvery is how many bytes of a segment each small read stands for: that many
	// are read in the time of a seek.
	aheadEvery = 512 << 10
)

// An ahead turns many small reads into large ones. A delta with grains in the order of their writes is
// read at random positions, a grain at a time; on a cold disk that takes a hundred times as long as
// reading all of it. Therefore a segment with a number of small reads is fetched whole, once. Files
// with few reads are left alone, and no file is fetched twice.
type readAhead struct {
	prefetch func(disk.Range) // starts to read a range of the file; it does not wait
	segment  int64            // bytes
	small    []atomic.Uint32  // reads of each segment
}

// fetcher is a file that can be read ahead: a local one.
type prefetcher interface {
	prefetch(disk.Range)
}

// newAhead returns nil for a file that cannot be read ahead.
func newAhead(src disk.Source) *readAhead {
	f, ok := src.(prefetcher)
	if !ok {
		return nil
	}
	segment := max(aheadSegment, src.Size()/aheadSegments+1)
	return &readAhead{prefetch: f.prefetch, segment: segment, small: make([]atomic.Uint32, src.Size()/segment+1)}
}

// countRead is called for each read from at that is shorter than aloneSize.
func (a *readAhead) countRead(at int64) {
	if a == nil {
		return
	}
	n := at / a.segment
	if a.small[n].Add(1) == uint32(a.segment/aheadEvery) {
		a.prefetch(disk.Range{Off: n * a.segment, Len: a.segment})
	}
}

// prefetch prefetches r into the page cache. It is advice: a failure costs only time.
func (f *localFile) prefetch(r disk.Range) {
	_ = unix.Fadvise(int(f.Fd()), r.Off, r.Len, unix.FADV_WILLNEED)
}
