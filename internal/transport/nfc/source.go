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
	// span is how many consecutive bytes one reader should cover.
	span = 16 << 20

	// readers are useful for each handle: one whose answers come in and one whose requests
	// are next.
	readers = 2
)

// Source is one disk, read over several handles.
type Source struct {
	t    *Transport
	disk transport.Disk
	file *inventory.Disk // what is read: the disk itself or what a snapshot froze
	path string
	esxi *esxi
	size int64

	handles *handles
	alloc   *allocation.Map
	trial   *trial
	counts  counts
}

var _ disk.Source = (*Source)(nil)

// counts are what a Report is made of.
type counts struct{ read, failures atomic.Int64 }

// Report says how reading a disk went.
type Report struct {
	Where       string         `json:"where"`       // the address, and why that one
	Read        int64          `json:"read"`        // bytes of the disk that were read, samples of the map included
	Wire        int64          `json:"wire"`        // bytes received for them
	Handles     int            `json:"handles"`     // most that were open at once
	Failures    int64          `json:"failures"`    // reads that had to be repeated
	Compression string         `json:"compression"` // in use at the end
	Rates       string         `json:"rates"`       // that led to it; empty: it was not measured to the end
	Map         allocation.Use `json:"map"`         // whether the allocation map was used
	MapNote     string         `json:"mapNote"`     // why not, or how it was tested
}

func newSource(t *Transport, d transport.Disk, file *inventory.Disk, e *esxi) *Source {
	s := &Source{t: t, disk: d, file: file, path: file.Path.String(), esxi: e, trial: newTrial(t.opts.Compressions)}
	s.handles = newHandles(s)
	s.alloc = allocation.New(allocation.Disk{
		Key: file.Key, Size: file.Capacity, Ask: s.queryAllocated, ReadAt: s.ReadAt,
	}, t.opts.Seed, t.opts.Log)
	return s
}

// openFirst opens the first handle, which tells the disk's size.
func (s *Source) openFirst(ctx context.Context) error {
	if err := s.esxi.memory.joinDisk(ctx, s.handles.cost); err != nil {
		return err
	}
	s.handles.reserved = 1
	var patient retry
	for {
		h, err := s.handles.claimHandle(ctx)
		if err == nil {
			s.size = h.disk.Size()
			s.handles.releaseHandle(h)
			s.t.opts.Log.Info("disk opened over NFC", "disk", s.file.Key, "path", s.path, "host", s.readAddress())
			return nil
		}
		if err := patient.wait(ctx, s.t.opts, err); err != nil {
			s.handles.close()
			return err
		}
	}
}

// readAddress names the address that is read from, and why it is that one.
func (s *Source) readAddress() string { return s.handles.readAddress() }

// Path returns the descriptor's datastore path of what is read.
func (s *Source) Path() inventory.Path { return s.file.Path }

// Size returns the disk's capacity in bytes.
func (s *Source) Size() int64 { return s.size }

// ReadAt reads p from the handle with the least to do. What breaks is read again.
func (s *Source) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(s.size, disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return fmt.Errorf("read %s: %w", s.path, err)
	}
	return s.withHandle(ctx, off, func(ctx context.Context, d *nfc.Disk) error {
		c := s.trial.nextCompression()
		if err := d.ReadAs(ctx, p, off, c); err != nil {
			return err
		}
		s.counts.read.Add(int64(len(p)))
		s.trial.recordRead(s.t.opts.Now(), int64(len(p)), c)
		return nil
	})
}

// withHandle does something with a handle, and again with another as long as patience lasts.
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

// Extents gives the allocated areas as data and the rest as zero. The first call asks for
// the map of the whole disk and tests it; without a map worth trusting everything is data.
func (s *Source) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := disk.CheckRange(s.size, r); err != nil {
		return nil, err
	}
	return s.alloc.Extents(ctx, r)
}

// queryAllocated asks which areas of r are in use. NFC itself tells it for a file; whether what
// it tells for a layer of a chain includes the layers below is not known for certain, so
// that change tracking is asked about chains, and where NFC has no answer.
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

// Hints asks for as many readers as keep all handles busy.
func (s *Source) Hints() disk.Hints {
	return disk.Hints{Request: s.handles.readerRequest(), Streams: readers * s.t.opts.Handles, Span: span}
}

// Report says how reading went so far.
func (s *Source) Report() Report {
	use, note := s.alloc.State()
	wire, most := s.handles.totals()
	chosen, rates := s.trial.outcome()
	return Report{
		Where: s.readAddress(), Read: s.counts.read.Load(), Wire: wire, Handles: most, Failures: s.counts.failures.Load(),
		Compression: chosen.String(), Rates: rates, Map: use, MapNote: note,
	}
}

// Close closes the handles.
func (s *Source) Close() error {
	s.handles.close()
	s.t.opts.Report(s.disk, s.Report())
	return nil
}
