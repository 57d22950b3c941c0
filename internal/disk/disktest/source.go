// Package disktest has the conformance suites for disk.Source and disk.Target. A new
// source or image format is done when it passes; calling a suite takes five lines:
//
//	func TestConformance(t *testing.T) {
//		disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
//			return openMine(t, want) // a source with want's content
//		})
//	}
//
// To add a case, add a function to the table of the suite: every implementation gets it.
package disktest

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/test/lane"
)

// sizes are the disk sizes of each suite in bytes: less than a chunk, within a chunk, and many chunks. The
// last one is larger in the slow lane.
var sizes = []int64{
	disk.SectorSize,
	3<<20 + 7*disk.SectorSize,
	map[bool]int64{false: 10 << 20, true: 40 << 20}[lane.Slow],
}

// TestSource checks a Source against a disk it was made from. open returns a source
// with the content of want; the suite closes it.
func TestSource(t *testing.T, open func(t *testing.T, want disk.Source) disk.Source) {
	cases := []struct {
		name string
		run  func(*testing.T, disk.Source, disk.Source)
	}{
		{"reads every byte", readsEveryByte},
		{"reads at any offset", readsAnywhere},
		{"reads in parallel", readsInParallel},
		{"refuses ranges outside of the disk", refusesOutside},
		{"describes without gaps", describesWithoutGaps},
		{"holes are zeros", holesAreZeros},
		{"streams ranges", streamsRanges},
		{"stops when canceled", stopsWhenCanceled},
	}
	for _, size := range sizes {
		want := disk.NewSparsePattern(size, 0.5, uint64(size))
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				src := open(t, want)
				defer func() {
					if err := src.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				}()
				if src.Size() != size {
					t.Fatalf("size %d, want %d", src.Size(), size)
				}
				c.run(t, src, want)
			})
		}
	}
}

// readsEveryByte compares the whole disk in steps of 1 MiB.
func readsEveryByte(t *testing.T, src, want disk.Source) {
	compareRange(t, src, want, disk.Range{Len: want.Size()}, 1<<20)
}

// readsAnywhere compares random ranges, aligned and not aligned.
func readsAnywhere(t *testing.T, src, want disk.Source) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		r := anyRange(rnd, want.Size(), 300<<10)
		compareRange(t, src, want, r, r.Len)
	}
}

// readsInParallel compares random ranges in eight goroutines.
func readsInParallel(t *testing.T, src, want disk.Source) {
	var g errgroup.Group
	for i := range 8 {
		g.Go(func() error {
			rnd := rand.New(rand.NewPCG(uint64(i), 3))
			for range 10 {
				r := anyRange(rnd, want.Size(), 200<<10)
				if !isSame(t, src, want, r) {
					t.Errorf("%v differs", r)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// refusesOutside requires an error for reads outside the disk.
func refusesOutside(t *testing.T, src, _ disk.Source) {
	size := src.Size()
	for _, r := range []disk.Range{{Off: size, Len: 1}, {Off: size - 1, Len: 2}, {Off: -1, Len: 1}, {Off: 1 << 62, Len: 512}} {
		if err := src.ReadAt(t.Context(), make([]byte, r.Len), r.Off); err == nil {
			t.Errorf("reading %v of a disk of %d bytes gave no error", r, size)
		}
	}
}

// describesWithoutGaps requires that extents are in order and fill each window.
func describesWithoutGaps(t *testing.T, src, _ disk.Source) {
	rnd := rand.New(rand.NewPCG(4, 5))
	windows := []disk.Range{{Len: src.Size()}}
	for range 20 {
		windows = append(windows, anyRange(rnd, src.Size(), src.Size()))
	}
	for _, w := range windows {
		extents, err := src.Extents(t.Context(), w)
		if err != nil {
			t.Fatalf("extents of %v: %v", w, err)
		}
		next := w.Off
		for _, e := range extents {
			if e.Off != next || e.Len <= 0 {
				t.Fatalf("extents of %v: %v follows offset %d", w, e, next)
			}
			next = e.End()
		}
		if next != w.End() {
			t.Fatalf("extents of %v end at %d", w, next)
		}
	}
}

// holesAreZeros requires that all zero extents are zeros of want.
func holesAreZeros(t *testing.T, src, want disk.Source) {
	extents, err := src.Extents(t.Context(), disk.Range{Len: src.Size()})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range extents {
		if e.Kind == disk.Zero {
			b := make([]byte, e.Len)
			if err := want.ReadAt(t.Context(), b, e.Off); err != nil {
				t.Fatal(err)
			}
			if !allZero(b) {
				t.Errorf("%v is called zero but holds data", e.Range)
			}
		}
	}
}

// streamsRanges compares streams of ranges, if the source has streams.
func streamsRanges(t *testing.T, src, want disk.Source) {
	stream := src.Hints().Stream
	if stream == nil {
		return // the source prefers ReadAt
	}
	rnd := rand.New(rand.NewPCG(6, 7))
	ranges := []disk.Range{{Len: min(src.Size(), 20<<20)}}
	for range 5 {
		ranges = append(ranges, anyRange(rnd, src.Size(), 2<<20))
	}
	for _, r := range ranges {
		body, err := stream(t.Context(), r)
		if err != nil {
			t.Fatalf("stream %v: %v", r, err)
		}
		got, err := io.ReadAll(body)
		if err := body.Close(); err != nil {
			t.Errorf("close stream %v: %v", r, err)
		}
		if err != nil || !bytes.Equal(got, readRange(t, want, r)) {
			t.Errorf("stream %v: %d bytes, error %v; content differs or is short", r, len(got), err)
		}
	}
}

// stopsWhenCanceled requires an error for a canceled context.
func stopsWhenCanceled(t *testing.T, src, _ disk.Source) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := src.ReadAt(ctx, make([]byte, disk.SectorSize), 0); err == nil {
		t.Error("reading with a canceled context gave no error")
	}
}

// compareRange fails the test unless src and want are equal in r. step is the length of reads.
func compareRange(t *testing.T, src, want disk.Source, r disk.Range, step int64) {
	t.Helper()
	for off := r.Off; off < r.End(); off += step {
		part := disk.Range{Off: off, Len: min(step, r.End()-off)}
		if !isSame(t, src, want, part) {
			t.Fatalf("%v differs", part)
		}
	}
}

// isSame reports whether src and want are equal in r.
func isSame(t *testing.T, src, want disk.Source, r disk.Range) bool {
	t.Helper()
	return bytes.Equal(readRange(t, src, r), readRange(t, want, r))
}

// readRange returns the bytes of r. A read error is an error of the test.
func readRange(t *testing.T, src disk.Source, r disk.Range) []byte {
	t.Helper()
	b := make([]byte, r.Len)
	if err := src.ReadAt(t.Context(), b, r.Off); err != nil {
		t.Errorf("read %v: %v", r, err)
	}
	return b
}

// anyRange returns a non-empty range of a disk, sector-aligned in half of the cases.
func anyRange(rnd *rand.Rand, size, most int64) disk.Range {
	off := rnd.Int64N(size)
	n := 1 + rnd.Int64N(min(most, size-off))
	if rnd.IntN(2) == 0 {
		off &^= disk.SectorSize - 1
		n = max(n&^(disk.SectorSize-1), disk.SectorSize)
	}
	return disk.Range{Off: off, Len: min(n, size-off)}
}

// allZero reports whether b contains only zeros.
func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
