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

// streamSource is a source that prefers streams, like HTTPS. It counts the streams and their bytes.
type streamSource struct {
	disk.Source
	streams, bytes atomic.Int64
	unread         atomic.Int64 // bytes of streams that were closed before their end
	broken         atomic.Int64 // number of streams that end after 100,000 bytes
}

func (s *streamSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	s.bytes.Add(int64(len(p)))
	s.streams.Add(1)
	return s.Source.ReadAt(ctx, p, off)
}

func (s *streamSource) Hints() disk.Hints { return disk.Hints{Stream: s.openStream} }

func (s *streamSource) openStream(ctx context.Context, r disk.Range) (io.ReadCloser, error) {
	s.streams.Add(1)
	b := make([]byte, r.Len)
	if err := s.Source.ReadAt(ctx, b, r.Off); err != nil {
		return nil, err
	}
	var body io.Reader = bytes.NewReader(b)
	if s.broken.Add(-1) >= 0 {
		body = io.LimitReader(body, 100_000)
	}
	return &countingStream{body, s, r.Len}, nil
}

// countingStream is the body of a stream.
type countingStream struct {
	io.Reader
	src  *streamSource
	left int64
}

func (c *countingStream) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.src.bytes.Add(int64(n))
	c.left -= int64(n)
	return n, err
}

func (c *countingStream) Close() error {
	c.src.unread.Add(c.left)
	return nil
}

func openStreamFile(t *testing.T, src *streamSource) *File {
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

func TestFileOverStreamsConformsToSource(t *testing.T) {
	disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
		c := New(ExportOptions())
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		return c.Open(context.Background(), "test", &streamSource{Source: want})
	})
}

// puncturedPattern is a pattern with additional holes of 64 KiB around each multiple of 3 MiB. Each is in two pages.
type puncturedPattern struct{ *disk.Pattern }

const puncture = 64 << 10

func (p puncturedPattern) ReadAt(ctx context.Context, b []byte, off int64) error {
	err := p.Pattern.ReadAt(ctx, b, off)
	for at := off / (3 << 20) * (3 << 20); at < off+int64(len(b))+puncture; at += 3 << 20 {
		hole := disk.Range{Off: at - puncture/2, Len: puncture}.Intersect(disk.Range{Off: off, Len: int64(len(b))})
		clear(b[max(hole.Off-off, 0):][:hole.Len])
	}
	return err
}

func (p puncturedPattern) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	var data []disk.Range
	extents, err := p.Pattern.Extents(ctx, r)
	for _, e := range extents {
		for at := e.Off; e.Kind == disk.Data && at < e.End(); {
			next := (at+puncture/2)/(3<<20)*(3<<20) + puncture/2 // end of the hole before at or around it
			if at < next && at >= next-puncture {
				at = next
				continue
			}
			end := min(e.End(), next+(3<<20)-puncture)
			data, at = append(data, disk.Range{Off: at, Len: end - at}), end
		}
	}
	return disk.Describe(r, data), err
}

// A stream fills several pages of 1 MiB and leaves out all holes but short ones. All
// streams are read to their end, because a stream that is not costs its connection.
func TestStreamsFillSeveralPages(t *testing.T) {
	for name, fill := range map[string]float64{"full": 1, "sparse": 0.4} {
		t.Run(name, func(t *testing.T) {
			const size, step = 128 << 20, 256 << 10
			src := &streamSource{Source: puncturedPattern{disk.NewSparsePattern(size, fill, 5)}}
			f := openStreamFile(t, src)
			extents, err := f.Extents(t.Context(), disk.Range{Len: size})
			if err != nil {
				t.Fatal(err)
			}
			var data, runs int64
			for _, e := range joinExtents(extents) {
				if e.Kind == disk.Data {
					data, runs = data+e.Len, runs+1
				}
			}
			for off := int64(0); off < size; off += step {
				checkRange(t, f, disk.Range{Off: off, Len: step})
			}
			if n := src.bytes.Load(); n > data {
				t.Errorf("%d bytes of data took %d requested bytes", data, n)
			}
			if n := src.unread.Load(); n > 0 {
				t.Errorf("%d bytes of streams were not read", n)
			}
			if n, most := src.streams.Load(), data/(2<<20)+3*runs+4; n > most {
				t.Errorf("%d runs with %d bytes took %d streams, want at most %d", runs, data, n, most)
			}
		})
	}
}

// If a stream fails, the reads that wait for its pages fail. The next read of each page requests it again.
func TestBrokenStreamIsRepeatedByTheNextRead(t *testing.T) {
	const size, step = 64 << 20, 512 << 10
	src := &streamSource{Source: disk.NewPattern(size)}
	f := openStreamFile(t, src)
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
			t.Fatalf("the bytes at %d differ from the source (%v)", off, err)
		}
	}
	if left := src.broken.Load(); left > 0 {
		t.Errorf("%d streams did not fail", left)
	}
}

// qemu-img convert -m 16 -W has 16 concurrent reads of 2 MiB, which end in any order. The kernel divides
// them for a mount, and the NBD server divides them for an export.
func TestUnorderedReaderIsReadAhead(t *testing.T) {
	for name, o := range map[string]Options{"mount": {}, "export": ExportOptions()} {
		t.Run(name, func(t *testing.T) {
			const size, step, piece = 128 << 20, 2 << 20, 1 << 20
			src := &streamSource{Source: disk.NewPattern(size)}
			c := New(o)
			f := c.Open(context.Background(), "test", src)
			var next atomic.Int64
			var readers sync.WaitGroup
			for range 16 {
				readers.Go(func() {
					for off := next.Add(step) - step; off < size; off = next.Add(step) - step {
						var pieces sync.WaitGroup
						for at := off; at < off+step; at += piece {
							pieces.Go(func() { checkRange(t, f, disk.Range{Off: at, Len: piece}) })
						}
						pieces.Wait()
					}
				})
			}
			readers.Wait()
			if got := src.bytes.Load(); got > size+size/20 {
				t.Errorf("%d bytes took %d requested bytes", size, got)
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

// checkRange compares a range with the source.
func checkRange(t *testing.T, f *File, r disk.Range) {
	got, want := make([]byte, r.Len), make([]byte, r.Len)
	err := errors.Join(f.ReadAt(t.Context(), got, r.Off), f.src.(*streamSource).Source.ReadAt(t.Context(), want, r.Off))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the bytes of %v differ from the source (%v)", r, err)
	}
}
