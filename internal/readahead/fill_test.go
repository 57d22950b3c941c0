package readahead

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
)

// streaming is a source that prefers streams, like HTTPS. It counts them and the bytes that they deliver.
type streaming struct {
	disk.Source
	streams, bytes atomic.Int64
	broken         atomic.Int64 // number of streams that end after 100,000 bytes
}

func (s *streaming) ReadAt(ctx context.Context, p []byte, off int64) error {
	s.bytes.Add(int64(len(p)))
	s.streams.Add(1)
	return s.Source.ReadAt(ctx, p, off)
}

func (s *streaming) Hints() disk.Hints { return disk.Hints{Stream: s.open} }

func (s *streaming) open(ctx context.Context, r disk.Range) (io.ReadCloser, error) {
	s.streams.Add(1)
	b := make([]byte, r.Len)
	if err := s.Source.ReadAt(ctx, b, r.Off); err != nil {
		return nil, err
	}
	var body io.Reader = bytes.NewReader(b)
	if s.broken.Add(-1) >= 0 {
		body = io.LimitReader(body, 100_000)
	}
	return io.NopCloser(counted{body, s}), nil
}

// counted is the body of a stream.
type counted struct {
	io.Reader
	src *streaming
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.src.bytes.Add(int64(n))
	return n, err
}

func openStreaming(t *testing.T, src *streaming) *File {
	t.Helper()
	c := New(ExportOptions())
	f := c.Open(context.Background(), "test", src)
	t.Cleanup(func() {
		if err := errors.Join(f.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestFileOverStreamsIsASource(t *testing.T) {
	disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
		c := New(ExportOptions())
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		return c.Open(context.Background(), "test", &streaming{Source: want})
	})
}

// Pages of 1 MiB are filled by streams of several pages, and holes are left out.
func TestStreamsFillSeveralPages(t *testing.T) {
	for name, fill := range map[string]float64{"full": 1, "sparse": 0.4} {
		t.Run(name, func(t *testing.T) {
			const size, step = 128 << 20, 256 << 10
			src := &streaming{Source: disk.NewSparsePattern(size, fill, 5)}
			f := openStreaming(t, src)
			extents, err := f.Extents(t.Context(), disk.Range{Len: size})
			if err != nil {
				t.Fatal(err)
			}
			var data, runs int64
			for _, e := range extents {
				if e.Kind == disk.Data {
					data, runs = data+e.Len, runs+1
				}
			}
			for off := int64(0); off < size; off += step {
				isSame(t, f, disk.Range{Off: off, Len: step})
			}
			if n := src.bytes.Load(); n > data {
				t.Errorf("%d bytes of data took %d bytes", data, n)
			}
			if n, most := src.streams.Load(), data/(2<<20)+3*runs+4; n > most {
				t.Errorf("%d runs with %d bytes took %d streams, want at most %d", runs, data, n, most)
			}
		})
	}
}

// A stream that fails fails the reads that wait for its pages; the next read of each page repeats it.
func TestBrokenStreamIsRepeatedByTheNextRead(t *testing.T) {
	const size, step = 64 << 20, 512 << 10
	src := &streaming{Source: disk.NewPattern(size)}
	f := openStreaming(t, src)
	failures := 0
	got, want := make([]byte, step), make([]byte, step)
	for off := int64(0); off < size; off += step {
		if off == size/2 {
			src.broken.Store(3)
		}
		for {
			err := f.ReadAt(t.Context(), got, off)
			if err == nil {
				break
			}
			if failures++; !errors.Is(err, io.ErrUnexpectedEOF) || failures > 100 {
				t.Fatalf("failure %d at %d: %v", failures, off, err)
			}
		}
		if err := src.Source.ReadAt(t.Context(), want, off); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("the bytes at %d are wrong (%v)", off, err)
		}
	}
	if left := src.broken.Load(); left > 0 {
		t.Errorf("%d streams did not fail", left)
	}
}

// qemu-img convert -m 16 -W has 16 concurrent reads of 2 MiB, which end in any order. The kernel divides
// them for a mount, and the NBD server for an export.
func TestUnorderedReaderIsReadAhead(t *testing.T) {
	for name, o := range map[string]Options{"mount": {}, "export": ExportOptions()} {
		t.Run(name, func(t *testing.T) {
			const size, step, piece = 128 << 20, 2 << 20, 1 << 20
			src := &streaming{Source: disk.NewPattern(size)}
			c := New(o)
			f := c.Open(context.Background(), "test", src)
			var next atomic.Int64
			var readers sync.WaitGroup
			for range 16 {
				readers.Go(func() {
					for off := next.Add(step) - step; off < size; off = next.Add(step) - step {
						var pieces sync.WaitGroup
						for at := off; at < off+step; at += piece {
							pieces.Go(func() { isSame(t, f, disk.Range{Off: at, Len: piece}) })
						}
						pieces.Wait()
					}
				})
			}
			readers.Wait()
			if got := src.bytes.Load(); got > size+size/20 {
				t.Errorf("%d bytes took %d bytes", size, got)
			}
			if got := src.streams.Load(); got > size/(1<<20) {
				t.Errorf("%d MiB took %d streams", size>>20, got)
			}
			if err := errors.Join(f.Close(), c.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// isSame compares a range with the source's.
func isSame(t *testing.T, f *File, r disk.Range) {
	got, want := make([]byte, r.Len), make([]byte, r.Len)
	err := errors.Join(f.ReadAt(t.Context(), got, r.Off), f.src.(*streaming).Source.ReadAt(t.Context(), want, r.Off))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the bytes of %v are wrong (%v)", r, err)
	}
}
