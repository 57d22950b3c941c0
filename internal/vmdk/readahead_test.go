package vmdk

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

// fetched is a file that notes what was read ahead.
type fetched struct {
	bytesSource
	size int64
	got  []disk.Range
}

func (f *fetched) Size() int64           { return f.size }
func (f *fetched) prefetch(r disk.Range) { f.got = append(f.got, r) }

func TestManySmallReadsFetchTheirSegmentOnce(t *testing.T) {
	f := &fetched{size: 10 << 20}
	a := newAhead(f)
	for range 7 {
		a.countRead(5 << 20)
		a.countRead(1 << 20)
	}
	if len(f.got) != 0 {
		t.Fatalf("seven reads of a segment fetched %v", f.got)
	}
	for range 100 {
		a.countRead(8<<20 - 1)
	}
	a.countRead(10<<20 - 1)
	if want := []disk.Range{{Off: 4 << 20, Len: 4 << 20}}; !slices.Equal(f.got, want) {
		t.Errorf("fetched %v, want %v", f.got, want)
	}
}

func TestReadingAheadTakesLittleMemory(t *testing.T) {
	for size, want := range map[int64]int{0: 1, 1 << 30: 257, 256 << 30: 1 << 16, 64 << 40: 1 << 16} {
		if got := len(newAhead(&fetched{size: size}).small); got > want {
			t.Errorf("%d bytes have %d segments, want %d at most", size, got, want)
		}
	}
	newAhead(bytesSource{}).countRead(5) // of a file that cannot be read ahead
}
