package mount

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
)

// newTestCache has the least memory there can be.
func newTestCache() *cache {
	return newCache(Options{PageSize: leastPageSize, Pages: leastPages}.withDefaults())
}

// TestCacheOfFourPagesNeverMixesBytes has readers of two files, some in order and some not,
// fight for four pages: each must get the bytes of its own offset.
func TestCacheOfFourPagesNeverMixesBytes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := newTestCache()
	const size = 24<<20 + 12345*512
	var files []*file
	for range 2 {
		files = append(files, newFile(ctx, "test", disk.NewPattern(size), c, slog.New(slog.DiscardHandler)))
	}
	var readers sync.WaitGroup
	for i := range 6 {
		readers.Go(func() {
			f, rnd := files[i%2], rand.New(rand.NewPCG(uint64(i), 1))
			dest := make([]byte, 1<<20)
			for turn := range 60 {
				off, n := int64(turn)*(400<<10), int64(400<<10)
				if i >= 4 {
					off, n = rnd.Int64N(size), rnd.Int64N(1<<20)+1
				}
				readAndCheck(t, ctx, f, dest[:n], off)
			}
		})
	}
	readers.Wait()
	for _, f := range files {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

func readAndCheck(t *testing.T, ctx context.Context, f *file, dest []byte, off int64) {
	t.Helper()
	got, err := f.readAt(ctx, dest, off)
	if err != nil {
		t.Error(err)
		return
	}
	defer got.releasePage()
	want := make([]byte, max(min(int64(len(dest)), f.size-off), 0))
	if err := f.src.ReadAt(ctx, want, min(off, f.size)); err != nil {
		t.Error(err)
	}
	if string(want) != string(got.data) {
		t.Errorf("%d bytes at %d are wrong", len(want), off)
	}
}

func TestReaderIsKnownByItsReads(t *testing.T) {
	read := func(s *stream, off, n int64) { s.addRead(disk.Range{Off: off, Len: n}, time.Time{}) }
	t.Run("in order", func(t *testing.T) {
		s := &stream{}
		for off := int64(0); off < sequentialAfter; off += 4096 {
			if s.isSequential() {
				t.Fatalf("sequential after %d bytes", off)
			}
			read(s, off, 4096)
		}
		if !s.isSequential() {
			t.Error("not sequential")
		}
	})
	t.Run("one large read is no reader", func(t *testing.T) {
		s := &stream{}
		read(s, 0, 1<<20)
		if s.isSequential() {
			t.Error("sequential after one read")
		}
	})
	t.Run("jumps end it", func(t *testing.T) {
		s := &stream{end: 8 << 20, run: 8 << 20, reads: 8}
		for range 12 {
			off := s.end + s.maxGap()
			if !s.isNear(disk.Range{Off: off, Len: 4096}, false) {
				t.Fatalf("a jump of %d bytes makes another reader", s.maxGap())
			}
			read(s, off, 4096)
		}
		if s.isSequential() {
			t.Errorf("still trusted with %d bytes in a row", s.run)
		}
	})
	t.Run("out of order", func(t *testing.T) {
		a, b := &stream{start: 0, end: 4 << 20, run: 4 << 20, reads: 4}, &stream{start: 2 << 20, end: 6 << 20, run: 4 << 20, reads: 4}
		if !a.overlaps(b) || !b.overlaps(a) {
			t.Error("two stretches that overlap are two readers")
		}
		a.mergeFrom(b)
		if a.start != 0 || a.end != 6<<20 || a.run != 8<<20 {
			t.Errorf("joined they are %+v", a)
		}
	})
}

func TestWindowGrowsWithWhatWasRead(t *testing.T) {
	var last int64
	for _, run := range []int64{0, 1 << 20, 4 << 20, 1 << 40} {
		w := (&stream{run: run}).aheadWindow(32, 4<<20)
		if w < last || w > 96<<20 {
			t.Errorf("after %d bytes it is %d, before it was %d", run, w, last)
		}
		last = w
	}
	if w := (&stream{run: 1 << 40}).aheadWindow(8, 4<<20); w != 24<<20 {
		t.Errorf("one of four readers has a window of %d", w)
	}
}

func TestOptionsAreBounded(t *testing.T) {
	for _, c := range []struct{ size, count, wantSize, wantCount int64 }{
		{0, 0, 4 << 20, 32}, {128 << 20, 16, 8 << 20, 16}, {1, 1, 1 << 20, 4}, {5 << 20, 1 << 30, 8 << 20, 16}, {1 << 62, -1, 8 << 20, 16},
	} {
		o := Options{PageSize: c.size, Pages: int(c.count)}.withDefaults()
		if o.PageSize != c.wantSize || int64(o.Pages) != c.wantCount {
			t.Errorf("%d pages of %d become %d of %d, want %d of %d", c.count, c.size, o.Pages, o.PageSize, c.wantCount, c.wantSize)
		}
	}
}
