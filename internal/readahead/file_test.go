package readahead

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
	"github.com/decamp/decamp/internal/fault"
)

// countingSource is a source that counts its requests and their bytes, and may delay them.
type countingSource struct {
	disk.Source
	bytes, requests atomic.Int64
	hold            func(ctx context.Context) error // called before each request; nil holds nothing
	holdMap         func(ctx context.Context) error // the same for extents
}

func (s *countingSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	s.requests.Add(1)
	s.bytes.Add(int64(len(p)))
	if s.hold != nil {
		if err := s.hold(ctx); err != nil {
			return err
		}
	}
	return s.Source.ReadAt(ctx, p, off)
}

func (s *countingSource) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if s.holdMap != nil {
		if err := s.holdMap(ctx); err != nil {
			return nil, err
		}
	}
	return s.Source.Extents(ctx, r)
}

// openCounted opens a file over src in a cache of an export, and closes both with the test.
func openCounted(t *testing.T, src *countingSource, o Options) *File {
	t.Helper()
	c := New(o)
	f := c.Open(context.Background(), "test", src)
	t.Cleanup(func() {
		if err := errors.Join(f.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// checkView reads a range with View and compares its bytes with the source.
func checkView(t *testing.T, f *File, r disk.Range) {
	t.Helper()
	data, release, err := f.View(t.Context(), make([]byte, r.Len), r.Off)
	defer release()
	want := make([]byte, r.Len)
	if err := errors.Join(err, f.src.(*countingSource).Source.ReadAt(t.Context(), want, r.Off)); err != nil {
		t.Error(err)
	} else if !bytes.Equal(data, want) {
		t.Errorf("the bytes of %v differ from the source", r)
	}
}

func TestFileConformsToSource(t *testing.T) {
	disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
		c := New(ExportOptions())
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		return c.Open(context.Background(), "test", want)
	})
}

// Four connections read parts of the disk like nbdcopy: in order, with many concurrent requests, and
// only data. The cache requests each byte of data once, and no holes.
func TestParallelStreamsFetchEachByteOnce(t *testing.T) {
	for name, fill := range map[string]float64{"full": 1, "sparse": 0.25} {
		t.Run(name, func(t *testing.T) {
			const size, part, step, depth = 384 << 20, 64 << 20, 256 << 10, 16
			src := &countingSource{Source: disk.NewSparsePattern(size, fill, 7)}
			f := openCounted(t, src, ExportOptions())
			var data int64
			var next atomic.Int64
			var connections sync.WaitGroup
			extents, err := f.Extents(t.Context(), disk.Range{Len: size})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range extents {
				if e.Kind == disk.Data {
					data += e.Len
				}
			}
			for range 4 {
				connections.Go(func() {
					room := make(chan struct{}, depth)
					for {
						whole := disk.Range{Off: (next.Add(1) - 1) * part, Len: part}
						if whole.Off >= size {
							break
						}
						runs, err := f.Extents(t.Context(), whole)
						if err != nil {
							t.Error(err)
						}
						for _, e := range runs {
							for off := e.Off; e.Kind == disk.Data && off < e.End(); off += step {
								room <- struct{}{}
								connections.Go(func() {
									checkView(t, f, disk.Range{Off: off, Len: min(step, e.End()-off)})
									<-room
								})
							}
						}
					}
				})
			}
			connections.Wait()
			if got := src.bytes.Load(); got < data || got > data+data/25 { // very late reads are requested twice
				t.Errorf("%d bytes of data took %d requested bytes", data, got)
			}
		})
	}
}

// Readers that take turns, one request at a time, keep their pages with the least memory of an export.
func TestStreamsDoNotEvictEachOther(t *testing.T) {
	const size, step = 256 << 20, 128 << 10
	src := &countingSource{Source: disk.NewPattern(size)}
	f := openCounted(t, src, ExportOptions())
	for off := int64(0); off < size/4; off += step {
		for i := range int64(4) {
			checkView(t, f, disk.Range{Off: i*size/4 + off, Len: step})
		}
	}
	if got := src.bytes.Load(); got > size+size/100 {
		t.Errorf("%d bytes took %d requested bytes", size, got)
	}
}

func TestSecondPassIsReadAheadAgain(t *testing.T) {
	const size, step = 96 << 20, 256 << 10
	src := &countingSource{Source: disk.NewPattern(size)}
	f := openCounted(t, src, ExportOptions())
	for range 2 {
		for off := int64(0); off < size; off += step {
			checkView(t, f, disk.Range{Off: off, Len: step})
		}
	}
	if bytes, requests := src.bytes.Load(), src.requests.Load(); bytes > 2*size+size/50 || requests > 2*size/(1<<20)+8 {
		t.Errorf("two passes over %d bytes took %d requested bytes in %d requests", size, bytes, requests)
	}
}

// The first read in a block requests only its sectors, the second one the whole block.
func TestRandomReadsRequestOnlyTheirSectors(t *testing.T) {
	const size, reads = 4 << 30, 400
	src := &countingSource{Source: disk.NewPattern(size)}
	f := openCounted(t, src, ExportOptions())
	rnd := rand.New(rand.NewPCG(1, 2))
	for range reads {
		checkView(t, f, disk.Range{Off: rnd.Int64N(size>>12) << 12, Len: 4 << 10})
	}
	if got := src.bytes.Load(); got > 2*reads*4<<10 {
		t.Errorf("%d reads of 4 KiB took %d requested bytes", reads, got)
	}
	readAndCount := func(requested int64, offsets ...int64) {
		t.Helper()
		before := src.bytes.Load()
		for _, off := range offsets {
			checkView(t, f, disk.Range{Off: off, Len: 1000})
		}
		if got := src.bytes.Load() - before; got != requested {
			t.Errorf("reads at %v took %d requested bytes, want %d", offsets, got, requested)
		}
	}
	readAndCount(3*512, 100<<20+300)
	readAndCount(0, 100<<20+300, 100<<20+100)
	readAndCount(64<<10, 100<<20+40_000)
	readAndCount(0, 100<<20, 100<<20+64<<10-1000, 100<<20+300)
}

func TestViewStaysValidUntilItsRelease(t *testing.T) {
	const size = 64 << 20
	src := &countingSource{Source: disk.NewPattern(size)}
	f := openCounted(t, src, Options{PageSize: LeastPageSize, Pages: leastPages, Blocks: leastBlocks})
	type heldView struct {
		data    []byte
		release func()
		off     int64
	}
	var views []heldView
	for off := int64(0); off < 8<<20; off += 256 << 10 {
		data, release, err := f.View(t.Context(), make([]byte, 4096), off)
		if err != nil {
			t.Fatal(err)
		}
		views = append(views, heldView{data, release, off})
	}
	for off := int64(8 << 20); off < size; off += 128 << 10 {
		checkView(t, f, disk.Range{Off: off, Len: 128 << 10})
	}
	want := make([]byte, 4096)
	for _, v := range views {
		if err := src.Source.ReadAt(t.Context(), want, v.off); err != nil || !bytes.Equal(v.data, want) {
			t.Errorf("the view at %d has changed (%v)", v.off, err)
		}
		v.release()
	}
}

// waitForEnd delays a request until its context ends.
func waitForEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestReadsEndWithTheirTimeout(t *testing.T) {
	src := &countingSource{Source: disk.NewPattern(64 << 20), hold: waitForEnd}
	f := openCounted(t, src, Options{ReadTimeout: 20 * time.Millisecond})
	for _, n := range []int64{512, 100 << 10, 5 << 20} {
		err := f.ReadAt(t.Context(), make([]byte, n), 0)
		if !errors.Is(err, errDeadline) || !fault.Is(err, fault.Transient) {
			t.Errorf("a read of %d bytes ended with %v", n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.ReadAt(ctx, make([]byte, 512), 1<<20); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled read ended with %v", err)
	}
}

func TestFailedReadIsRepeatedByTheNextOne(t *testing.T) {
	broken := fault.New(fault.Unreachable, "the host is down")
	var down atomic.Bool
	src := &countingSource{Source: disk.NewPattern(64 << 20), hold: func(context.Context) error {
		if down.Load() {
			return broken
		}
		return nil
	}}
	f := openCounted(t, src, ExportOptions())
	for off := int64(0); off < 8<<20; off += 256 << 10 {
		checkView(t, f, disk.Range{Off: off, Len: 256 << 10})
	}
	f.fills.Wait()
	down.Store(true)
	for _, r := range []disk.Range{{Off: 50 << 20, Len: 4096}, {Off: 40 << 20, Len: 1 << 20}, {Off: 32 << 20, Len: 5 << 20}} {
		if err := f.ReadAt(t.Context(), make([]byte, r.Len), r.Off); !errors.Is(err, broken) {
			t.Errorf("read of %v from a host that is down: %v", r, err)
		}
		f.fills.Wait()
		down.Store(false)
		checkView(t, f, r)
		down.Store(true)
	}
	down.Store(false)
}

// A slow map of a host does not delay reads for long. The cache uses the map when it has it.
func TestReadsDoNotWaitForASlowMap(t *testing.T) {
	const size, step = 128 << 20, 256 << 10
	ready := make(chan struct{})
	src := &countingSource{Source: disk.NewSparsePattern(size, 0.3, 4), holdMap: func(ctx context.Context) error {
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	f := openCounted(t, src, Options{PageSize: LeastPageSize, Pages: 8, mapPatience: time.Millisecond})
	for off := int64(0); off < size/2; off += step {
		checkView(t, f, disk.Range{Off: off, Len: step})
	}
	if got := src.bytes.Load(); got < size/2 {
		t.Errorf("%d bytes were read without a map", got)
	}
	close(ready)
	if _, err := f.Extents(t.Context(), disk.Range{Len: size}); err != nil {
		t.Fatal(err)
	}
	f.fills.Wait()
	before := src.bytes.Load()
	for off := int64(size / 2); off < size; off += step {
		checkView(t, f, disk.Range{Off: off, Len: step})
	}
	if got := src.bytes.Load() - before; got > size/4 {
		t.Errorf("%d bytes of a disk with 30 %% of data were read with the map", got)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	f := openCounted(t, &countingSource{Source: disk.NewPattern(1 << 20)}, Options{})
	_, release, err := f.View(t.Context(), make([]byte, 512), 1<<20)
	release()
	if want := fmt.Sprintf("read test: %v", disk.CheckRange(1<<20, disk.Range{Off: 1 << 20, Len: 512})); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// With a known map, a read of bytes that are in no page requests only data.
func TestReadsWithoutPagesSkipHoles(t *testing.T) {
	const size, most = 64 << 20, 192 << 10
	src := &countingSource{Source: disk.NewSparsePattern(size, 0.5, 3)}
	f := openCounted(t, src, ExportOptions())
	extents, err := f.Extents(t.Context(), disk.Range{Len: size})
	if err != nil {
		t.Fatal(err)
	}
	borders := 0
	for i, e := range extents[:len(extents)-1] {
		hole := extents[i+1]
		data := min(e.Len, most)
		if e.Kind != disk.Data || hole.Kind != disk.Zero || data < blockSize {
			continue
		}
		r := disk.Range{Off: e.End() - data, Len: data + min(hole.Len, most)}
		parts := 1 + (r.End()-1)/f.cache.pages.size - r.Off/f.cache.pages.size
		if parts > 1 {
			continue // each page is read separately, and a part below blockSize requests its block
		}
		borders++
		before := src.bytes.Load()
		checkView(t, f, r)
		if got := src.bytes.Load() - before; got > data {
			t.Errorf("%v with %d bytes of data took %d requested bytes", r, data, got)
		}
		f.cache.mu.Lock()
		f.cache.streams = nil // the next read counts as another reader
		f.cache.mu.Unlock()
	}
	if borders == 0 {
		t.Error("no read of data and a hole was tested")
	}
}
