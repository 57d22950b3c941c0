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

// span is the number of bytes that one Stream should read. Shorter ranges suffer from the latency of
// requests (4 MiB: 95 % of the limit, 1 MiB: 80 %); longer ones make the end of a disk uneven.
const span = 16 << 20

// firstRequest bounds the first request of a disk while other disks are read: a new disk waits for one
// request of each of them.
const firstRequest = 2 << 20

// Source is the flat file of one disk, read over HTTPS. It is a disk.Source.
type Source struct {
	disk transport.Disk // disk in the inventory
	path inventory.Path // datastore path of the flat file
	uri  string         // request URI of the flat file
	size int64          // capacity in bytes

	pool   *pool           // connections to the host
	queue  *diskQueue      // waiting requests of the disk
	begun  atomic.Bool     // a stream has received an answer
	alloc  *allocation.Map // allocated areas
	counts counts          // statistics for the Report
	report func(Report)    // called by Close
}

var _ disk.Source = (*Source)(nil)

// counts are the atomic counters of a Report.
type counts struct{ body, requests, failures, resumes atomic.Int64 }

// MapUse is the state of a disk's allocation map.
type MapUse = allocation.Use

// Values of MapUse.
const (
	MapUnasked = allocation.Unasked // the map was not requested
	MapTrusted = allocation.Trusted // tested; free areas are not read
	MapAbsent  = allocation.Absent  // no map exists; everything is read
	MapDropped = allocation.Dropped // the map was wrong; everything is read
)

// Report contains the statistics of a disk.
type Report struct {
	Body     int64  `json:"body"`     // bytes of bodies that were used, with the samples of the map
	Requests int64  `json:"requests"` // requests that were sent
	Failures int64  `json:"failures"` // attempts that were repeated
	Resumes  int64  `json:"resumes"`  // failures of answers that ended early
	Map      MapUse `json:"map"`      // use of the allocation map
	MapNote  string `json:"mapNote"`  // reason for Map, or result of the test
}

// Path returns the datastore file that is read.
func (s *Source) Path() inventory.Path { return s.path }

// Size returns the disk's capacity in bytes.
func (s *Source) Size() int64 { return s.size }

// ReadAt fills p with one request, which is served before waiting streams.
func (s *Source) ReadAt(ctx context.Context, p []byte, off int64) error {
	return s.readFull(ctx, p, off)
}

// Extents is part of disk.Source. The first call requests and tests the map of the whole disk. Without
// a reliable map all of r is data.
func (s *Source) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := disk.CheckRange(s.size, r); err != nil {
		return nil, err
	}
	return s.alloc.Extents(ctx, r)
}

// Hints suggests two streams for each connection: one that is read and one that is next.
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

// limitRequest returns the beginning of r that one request may cover.
func (s *Source) limitRequest(r disk.Range, urgent bool) disk.Range {
	if !urgent && !s.begun.Load() && s.pool.isShared() {
		r.Len = min(r.Len, firstRequest)
	}
	return r
}

// Report returns the statistics so far.
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

// Close ends the use of the pool. The connections stay open for other disks.
func (s *Source) Close() error {
	s.pool.removeDisk(s.queue)
	s.report(s.Report())
	return nil
}
