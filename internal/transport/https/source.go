package https

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/allocation"
)

// span is how much one Stream should cover. Shorter ranges show the latency of a request
// (4 MiB: 95 % of the cap, 1 MiB: 80 %), longer ones unbalance the end of a disk.
const span = 16 << 20

// beginning is how much a stream asks for before its disk had any answer, where other disks are
// read, too: whoever comes last waits for as much of each of them, and not for a span of each.
const firstRequest = 2 << 20

// Source is one disk's flat file, read over HTTPS.
type Source struct {
	disk transport.Disk
	path inventory.Path // of the flat file
	uri  string
	size int64

	pool   *pool
	queue  *diskQueue
	begun  atomic.Bool // a stream had an answer
	alloc  *allocation.Map
	counts counts
	report func(Report)
}

var _ disk.Source = (*Source)(nil)

// counts are what a Report is made of.
type counts struct{ body, requests, failures, resumes atomic.Int64 }

// MapUse says what became of a disk's allocation map.
type MapUse = allocation.Use

// The words of MapUse.
const (
	MapUnasked = allocation.Unasked
	MapTrusted = allocation.Trusted
	MapAbsent  = allocation.Absent
	MapDropped = allocation.Dropped
)

// Report says how reading a disk went.
type Report struct {
	Body     int64  `json:"body"`     // bytes of answers used, samples of the map included
	Requests int64  `json:"requests"` // requests sent
	Failures int64  `json:"failures"` // attempts that had to be repeated
	Resumes  int64  `json:"resumes"`  // of those, answers that ended early
	Map      MapUse `json:"map"`      // whether the allocation map was used
	MapNote  string `json:"mapNote"`  // why not, or how it was tested
}

// Path returns the datastore file that is read.
func (s *Source) Path() inventory.Path { return s.path }

// Size returns the disk's capacity in bytes.
func (s *Source) Size() int64 { return s.size }

// ReadAt reads p with one request, ahead of waiting streams.
func (s *Source) ReadAt(ctx context.Context, p []byte, off int64) error {
	return s.readFull(ctx, p, off)
}

// Extents gives the allocated areas as data and the rest as zero. The first call asks for
// the map of the whole disk and tests it; without a map worth trusting everything is data.
func (s *Source) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := disk.CheckRange(s.size, r); err != nil {
		return nil, err
	}
	return s.alloc.Extents(ctx, r)
}

// Hints asks for two streams a connection: one that is read and one that is next.
func (s *Source) Hints() disk.Hints {
	return disk.Hints{
		Request: span / 4,
		Streams: depth * s.pool.opts.MaxConnections,
		Span:    span,
		Stream: func(ctx context.Context, r disk.Range) (io.ReadCloser, error) {
			st, err := s.openStream(ctx, r, false)
			if err != nil {
				return nil, err
			}
			return st, nil
		},
	}
}

// limitRequest is what of a range to ask for at once.
func (s *Source) limitRequest(r disk.Range, urgent bool) disk.Range {
	if !urgent && !s.begun.Load() && s.pool.isShared() {
		r.Len = min(r.Len, firstRequest)
	}
	return r
}

// Report says how reading went so far.
func (s *Source) Report() Report {
	use, note := s.alloc.State()
	return Report{
		Body:     s.counts.body.Load(),
		Requests: s.counts.requests.Load(),
		Failures: s.counts.failures.Load(),
		Resumes:  s.counts.resumes.Load(),
		Map:      use,
		MapNote:  note,
	}
}

// Close leaves the pool; connections stay for other disks.
func (s *Source) Close() error {
	s.pool.removeDisk(s.queue)
	s.report(s.Report())
	return nil
}
