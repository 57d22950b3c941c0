package nfc

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/allocation"
)

const (
	// span is the number of consecutive bytes that one reader should read.
	span = 16 << 20

	// readers is the useful number of readers for each handle: one whose answers arrive, and one whose
	// requests are next.
	readers = 2
)

// Source is one disk, read over several handles. It is a disk.Source.
type Source struct {
	t    *Transport      // transport that opened it
	disk transport.Disk  // disk in the inventory
	file *inventory.Disk // disk that is read: the disk itself or the one that a snapshot froze
	path string          // datastore path of its descriptor
	esxi *esxi           // host that serves it
	size int64           // capacity in bytes, from the first handle

	handles *handles          // sessions on the disk
	alloc   *allocation.Map   // allocated areas
	trial   *compressionTrial // choice of the compression
	counts  counts            // statistics for the Report
}

var _ disk.Source = (*Source)(nil)

// counts are the atomic counters of a Report.
type counts struct{ read, failures atomic.Int64 }

// Report contains the statistics of a disk.
type Report struct {
	Where       string         `json:"where"`       // address, and the reason for it
	Read        int64          `json:"read"`        // bytes of the disk that were read, with the samples of the map
	Wire        int64          `json:"wire"`        // bytes received from the host
	Handles     int            `json:"handles"`     // highest number of concurrent handles
	Failures    int64          `json:"failures"`    // reads that were repeated
	Compression string         `json:"compression"` // compression in use at the end
	Rates       string         `json:"rates"`       // measured rates that led to it; empty if the measurement did not end
	Map         allocation.Use `json:"map"`         // use of the allocation map
	MapNote     string         `json:"mapNote"`     // reason for Map, or result of the test
}

// newSource returns the source for a disk, without a handle. file is the disk to read.
func newSource(t *Transport, d transport.Disk, file *inventory.Disk, e *esxi) *Source {
	s := &Source{t: t, disk: d, file: file, path: file.Path.String(), esxi: e, trial: newCompressionTrial(t.opts.Compressions)}
	s.handles = newHandles(s)
	s.alloc = allocation.New(allocation.Disk{
		Key: file.Key, Size: file.Capacity, Ask: s.queryAllocated, ReadAt: s.ReadAt,
	}, t.opts.Seed, t.opts.Log)
	return s
}

// openFirst opens the first handle, which has the disk's size. It waits for NFC memory, and retries
// like a read.
func (s *Source) openFirst(ctx context.Context) error {
	if err := s.esxi.memory.joinDisk(ctx, s.handles.cost); err != nil {
		return err
	}
	s.handles.reserved = 1
	patient := retry{most: s.t.opts.OpenRetries}
	for {
		h, err := s.handles.claimHandle(ctx)
		if err == nil {
			s.size = h.disk.Size()
			s.handles.releaseHandle(h)
			s.t.opts.Log.Info("disk opened over NFC", "vm", s.disk.VM.Ref, "disk", s.file.Key, "path", s.path, "host", s.readAddress())
			return nil
		}
		if err := patient.wait(ctx, s.t.opts, err); err != nil {
			s.handles.close()
			return err
		}
	}
}

// readAddress returns the address that is read from, and the reason for it.
func (s *Source) readAddress() string { return s.handles.readAddress() }

// Path returns the datastore path of the descriptor that is read.
func (s *Source) Path() inventory.Path { return s.file.Path }

// Size returns the disk's capacity in bytes.
func (s *Source) Size() int64 { return s.size }

// ReadAt fills p over the handle with the fewest reads. It repeats failed reads.
func (s *Source) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(s.size, disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return fmt.Errorf("read %s: %w", s.path, err)
	}
	return s.withHandle(ctx, off, func(ctx context.Context, d *nfc.Disk) error {
		c := s.trial.nextCompression(int64(len(p)))
		if err := d.ReadAs(ctx, p, off, c); err != nil {
			return err
		}
		s.counts.read.Add(int64(len(p)))
		s.trial.recordRead(s.t.opts.Now(), int64(len(p)), c)
		return nil
	})
}

// withHandle calls do with a handle, and again with another after an error, until retry.wait returns
// the error. off is for the error.
func (s *Source) withHandle(ctx context.Context, off int64, do func(context.Context, *nfc.Disk) error) error {
	var patient retry
	for {
		err := s.tryHandle(ctx, do)
		if err == nil {
			return nil
		}
		if err := patient.wait(ctx, s.t.opts, err); err != nil {
			return fmt.Errorf("read %s at %d: %w", s.path, off, err)
		}
		s.counts.failures.Add(1)
	}
}

// tryHandle calls do once, with a handle.
func (s *Source) tryHandle(ctx context.Context, do func(context.Context, *nfc.Disk) error) error {
	h, err := s.handles.claimHandle(ctx)
	if err != nil {
		return err
	}
	defer s.handles.releaseHandle(h)
	if err = do(ctx, h.disk); err != nil {
		s.handles.learnFrom(err)
	}
	return err
}

// Extents is part of disk.Source. The first call requests and tests the map of the whole disk. Without
// a reliable map all of r is data.
func (s *Source) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := disk.CheckRange(s.size, r); err != nil {
		return nil, err
	}
	return s.alloc.Extents(ctx, r)
}

// queryAllocated returns the allocated areas of r. For a single file NFC has them. For a layer of a
// chain it is not certain that NFC includes the layers below; then, and if NFC has no answer, change
// tracking is queried.
func (s *Source) queryAllocated(ctx context.Context, r disk.Range) (extents []disk.Extent, err error) {
	if s.file.Layers <= 1 {
		err = s.withHandle(ctx, r.Off, func(ctx context.Context, d *nfc.Disk) (err error) {
			extents, err = d.Extents(ctx, r)
			return err
		})
		if err == nil || ctx.Err() != nil || fault.Is(err, fault.Denied) {
			return extents, err
		}
	}
	return s.t.host.Allocated(ctx, s.disk.VM.Ref, s.disk.Snapshot, s.file.Key, r)
}

// Hints suggests as many readers as keep all handles busy.
func (s *Source) Hints() disk.Hints {
	return disk.Hints{Request: s.handles.readerRequest(), Streams: readers * s.t.opts.Handles, Span: span}
}

// Report returns the statistics so far.
func (s *Source) Report() Report {
	use, note := s.alloc.State()
	wire, most := s.handles.totals()
	chosen, rates := s.trial.outcome()
	return Report{
		Where: s.readAddress(), Read: s.counts.read.Load(), Wire: wire, Handles: most, Failures: s.counts.failures.Load(),
		Compression: chosen.String(), Rates: rates, Map: use, MapNote: note,
	}
}

// Close closes the handles and reports the statistics.
func (s *Source) Close() error {
	s.handles.close()
	s.t.opts.Report(s.disk, s.Report())
	return nil
}
