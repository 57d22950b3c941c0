package vmdk

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

// prefetchRecorder is a file that records its prefetched ranges.
type prefetchRecorder struct {
	bytesSource
	size       int64
	prefetched []disk.Range
}

func (f *prefetchRecorder) Size() int64           { return f.size }
func (f *prefetchRecorder) prefetch(r disk.Range) { f.prefetched = append(f.prefetched, r) }

func TestManySmallReadsPrefetchTheirSegmentOnce(t *testing.T) {
	f := &prefetchRecorder{size: 10 << 20}
	a := newAhead(f)
	for range 7 {
		a.countRead(5 << 20)
		a.countRead(1 << 20)
	}
	if len(f.prefetched) != 0 {
		t.Fatalf("seven reads of a segment prefetched %v", f.prefetched)
	}
	for range 100 {
		a.countRead(8<<20 - 1)
	}
	a.countRead(10<<20 - 1)
	if want := []disk.Range{{Off: 4 << 20, Len: 4 << 20}}; !slices.Equal(f.prefetched, want) {
		t.Errorf("prefetched %v, want %v", f.prefetched, want)
	}
}

func TestReadaheadUsesLittleMemory(t *testing.T) {
	for size, want := range map[int64]int{0: 1, 1 << 30: 257, 256 << 30: 1 << 16, 64 << 40: 1 << 16} {
		if got := len(newAhead(&prefetchRecorder{size: size}).small); got > want {
			t.Errorf("%d bytes have %d segments, want %d at most", size, got, want)
		}
	}
	newAhead(bytesSource{}).countRead(5) // must not panic for a file that does not support prefetching
}
