package readahead

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
)

// newTestCache returns a cache with the minimum memory.
func newTestCache() *Cache {
	return New(Options{PageSize: LeastPageSize, Pages: leastPages})
}

// Readers of two files, some in order and some not, compete for four pages. Each gets the bytes of its
// offset.
func TestCacheOfFourPagesNeverMixesBytes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := newTestCache()
	const size = 24<<20 + 12345*512
	var files []*File
	for range 2 {
		files = append(files, c.Open(ctx, "test", disk.NewPattern(size)))
	}
	var readers sync.WaitGroup
	for i := range 6 {
		readers.Go(func() {
			f, rnd := files[i%2], rand.New(rand.NewPCG(uint64(i), 1))
			dest := make([]byte, 1<<20)
			for turn := range 60 {
				off, n := int64(turn)*(400<<10), int64(400<<10)
				if i >= 4 {
					off = rnd.Int64N(size)
					n = rnd.Int64N(min(1<<20, size-off)) + 1
				}
				readAndCheck(t, ctx, f, dest[:n], off)
			}
		})
	}
	readers.Wait()
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func readAndCheck(t *testing.T, ctx context.Context, f *File, dest []byte, off int64) {
	t.Helper()
	got, release, err := f.View(ctx, dest, off)
	defer release()
	if err != nil {
		t.Error(err)
		return
	}
	want := make([]byte, len(dest))
	if err := f.src.ReadAt(ctx, want, off); err != nil {
		t.Error(err)
	}
	if string(want) != string(got) {
		t.Errorf("%d bytes at %d differ from the source", len(want), off)
	}
}

func TestReaderIsRecognizedByItsReads(t *testing.T) {
	read := func(s *stream, off, n int64) { s.addRead(disk.Range{Off: off, Len: n}, time.Time{}, 0) }
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
	t.Run("one large read", func(t *testing.T) {
		s := &stream{}
		read(s, 0, 1<<20)
		if s.isSequential() {
			t.Error("sequential after one read")
		}
	})
	t.Run("jumps", func(t *testing.T) {
		s := &stream{end: 8 << 20, run: 8 << 20, reads: 8}
		for range 12 {
			off := s.end + s.maxGap()
			if _, near := s.distanceTo(disk.Range{Off: off, Len: 4096}, false); !near {
				t.Fatalf("a jump of %d bytes counts as another reader", s.maxGap())
			}
			read(s, off, 4096)
		}
		if s.isSequential() {
			t.Errorf("still sequential after jumps, with a run of %d bytes", s.run)
		}
	})
	t.Run("late reads fill gaps", func(t *testing.T) {
		s := &stream{}
		for _, off := range []int64{0, 1, 3, 2, 6, 4} {
			if _, near := s.distanceTo(disk.Range{Off: off << 20, Len: 1 << 20}, false); off < s.end>>20 && !near {
				t.Errorf("the late read of MiB %d counts as another reader", off)
			}
			read(s, off<<20, 1<<20)
		}
		if want := (disk.Range{Off: 5 << 20, Len: 1 << 20}); s.end != 7<<20 || len(s.gaps) != 1 || s.gaps[0] != want {
			t.Errorf("after six of 7 MiB, the end is %d and the gaps are %v", s.end, s.gaps)
		}
		if _, near := s.distanceTo(disk.Range{Off: 1 << 20, Len: 1 << 20}, false); near {
			t.Error("a second read of the same bytes does not count as another reader")
		}
	})
	t.Run("two ends meet", func(t *testing.T) {
		s, near, far := &stream{end: 4 << 20}, &stream{start: 4 << 20, end: 6 << 20}, &stream{start: 4 << 20, end: 64 << 20}
		if !s.hasReached(near, 3<<20) || s.hasReached(far, 3<<20) || s.hasReached(near, 4<<20) {
			t.Error("hasReached is not true exactly for a reader that just reached the start of a short one")
		}
	})
}

func TestWindowGrowsWithTheReadBytes(t *testing.T) {
	var last int64
	for _, run := range []int64{0, 1 << 20, 4 << 20, 1 << 40} {
		w := (&stream{run: run}).aheadWindow(32, 4<<20)
		if w < last || w > 64<<20 {
			t.Errorf("window after %d bytes: %d, before: %d", run, w, last)
		}
		last = w
	}
	if w := (&stream{run: 1 << 40}).aheadWindow(8, 4<<20); w != 16<<20 {
		t.Errorf("window of one of four readers: %d, want %d", w, 16<<20)
	}
}

func TestOptionsAreBounded(t *testing.T) {
	for _, c := range []struct{ size, count, wantSize, wantCount int64 }{
		{0, 0, 4 << 20, 32}, {128 << 20, 16, 8 << 20, 16}, {1, 1, 1 << 20, 4}, {5 << 20, 1 << 30, 8 << 20, 16}, {1 << 62, -1, 8 << 20, 16},
	} {
		o := Options{PageSize: c.size, Pages: int(c.count)}.withDefaults()
		if o.PageSize != c.wantSize || int64(o.Pages) != c.wantCount {
			t.Errorf("options of %d pages of %d: got %d of %d, want %d of %d", c.count, c.size, o.Pages, o.PageSize, c.wantCount, c.wantSize)
		}
	}
}
