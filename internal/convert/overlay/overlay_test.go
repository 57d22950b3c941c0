package overlay

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
	"github.com/decamp/decamp/internal/fault"
)

// A layer that nothing was written to is the disk; so is one that everything was written to.
func TestConformance(t *testing.T) {
	disktest.TestSource(t, func(_ *testing.T, want disk.Source) disk.Source { return New(want, 1<<30) })
}

func TestConformanceOfWhatWasWritten(t *testing.T) {
	disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
		o := New(empty{want}, 1<<30)
		all, err := want.Extents(t.Context(), disk.Range{Len: want.Size()})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Kind == disk.Zero {
				continue
			}
			p := make([]byte, e.Len)
			if err := want.ReadAt(t.Context(), p, e.Off); err != nil {
				t.Fatal(err)
			}
			if err := o.WriteAt(t.Context(), p, e.Off); err != nil {
				t.Fatal(err)
			}
		}
		return o
	})
}

// empty is a disk of that size without data.
type empty struct{ disk.Source }

func (e empty) ReadAt(ctx context.Context, p []byte, off int64) error {
	clear(p)
	return e.Source.ReadAt(ctx, p[:0], off)
}

func (e empty) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r, Kind: disk.Zero}}, nil
}

// Random writes read back as an array would have them, the disk beneath stays, and what is
// told as changed, put onto a copy of it, makes them equal.
func TestWritesAreKeptApart(t *testing.T) {
	const size = 1<<20 + 512 // the last page is short
	base := disk.NewSparsePattern(size, 0.5, 3)
	want := make([]byte, size)
	if err := base.ReadAt(t.Context(), want, 0); err != nil {
		t.Fatal(err)
	}
	copied := memory(bytes.Clone(want))
	rng := rand.New(rand.NewPCG(1, 2))
	o := New(base, size*2)
	for range 300 {
		off := rng.Int64N(size)
		p := make([]byte, rng.Int64N(min(20_000, size-off))+1)
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		p = p[:min(int64(len(p)), size-off)]
		if err := o.WriteAt(t.Context(), p, off); err != nil {
			t.Fatal(err)
		}
		copy(want[off:], p)
		at := rng.Int64N(size - 5000)
		got := make([]byte, 5000)
		if err := o.ReadAt(t.Context(), got, at); err != nil || !bytes.Equal(got, want[at:at+5000]) {
			t.Fatalf("at %d: differs, %v", at, err)
		}
	}
	if err := o.ApplyTo(t.Context(), copied); err != nil || !bytes.Equal(copied, want) {
		t.Errorf("what was changed does not make the copy equal, %v", err)
	}
	if left := memory(make([]byte, size)); base.ReadAt(t.Context(), left, 0) != nil || bytes.Equal(left, want) {
		t.Error("the disk beneath has changed")
	}
}

func TestChangedIsInOrderAndNoMore(t *testing.T) {
	o := New(disk.NewSparsePattern(1<<20, 0.5, 3), 1<<20)
	for _, off := range []int64{900_000, 5000, 8190} {
		if err := o.WriteAt(t.Context(), []byte{1, 2, 3, 4}, off); err != nil {
			t.Fatal(err)
		}
	}
	got := o.Changed()
	want := []disk.Range{{Off: 4096, Len: 8192}, {Off: 219 * 4096, Len: 4096}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("changed %v, want %v", got, want)
	}
}

func TestTooMuchIsRefusedWhole(t *testing.T) {
	o := New(disk.NewSparsePattern(1<<20, 0.5, 3), 2*PageSize)
	if err := o.WriteAt(t.Context(), make([]byte, 2*PageSize), 0); err != nil {
		t.Fatal(err)
	}
	if err := o.WriteAt(t.Context(), make([]byte, 10), 5*PageSize); !fault.Is(err, fault.Unsupported) {
		t.Errorf("got %v, want a limit", err)
	}
	if err := o.WriteAt(t.Context(), make([]byte, 10), 7); err != nil {
		t.Errorf("a page that is held: %v", err)
	}
	if len(o.Changed()) != 1 {
		t.Errorf("changed %v", o.Changed())
	}
}

func TestSliceHasItsBounds(t *testing.T) {
	o := New(disk.NewSparsePattern(1<<20, 0.5, 3), 1<<20)
	s := o.Slice(t.Context(), 8192, 4096)
	if _, err := s.WriteAt([]byte("within"), 4090); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteAt([]byte("without"), 4090); err == nil {
		t.Error("a write went beyond the slice")
	}
	if _, err := s.ReadAt(make([]byte, 5000), 0); err == nil {
		t.Error("a read went beyond the slice")
	}
	p := make([]byte, 6)
	if err := o.ReadAt(t.Context(), p, 8192+4090); err != nil || string(p) != "within" {
		t.Errorf("%q, %v", p, err)
	}
}

// memory is an image in memory.
type memory []byte

func (m memory) WriteAt(_ context.Context, p []byte, off int64) error {
	copy(m[off:], p)
	return nil
}

// What is written above stays there, is read from there, and is taken whole or refused.
func TestLayerAbove(t *testing.T) {
	const size = 64 * PageSize
	o := New(disk.NewSparsePattern(size, 1, 3), 4*PageSize)
	write := func(on *Overlay, text string, page int64) {
		t.Helper()
		if err := on.WriteAt(t.Context(), []byte(text), page*PageSize); err != nil {
			t.Fatal(err)
		}
	}
	read := func(on *Overlay, page int64) string {
		t.Helper()
		p := make([]byte, 5)
		if err := on.ReadAt(t.Context(), p, page*PageSize); err != nil {
			t.Fatal(err)
		}
		return string(p)
	}
	write(o, "first", 1)
	above := o.NewLayer()
	write(above, "above", 1)
	write(above, "fresh", 2)
	if read(o, 1) != "first" || read(above, 1) != "above" || len(o.Changed()) != 1 {
		t.Error("what was written above is in the layer beneath")
	}
	if err := o.CheckMerge(above); err != nil {
		t.Fatal(err)
	}
	o.Merge(above)
	if read(o, 1) != "above" || read(o, 2) != "fresh" || len(above.Changed()) != 0 {
		t.Error("what was written above was not taken")
	}
	more := o.NewLayer()
	for page := range int64(3) {
		write(more, "more.", 10+page)
	}
	if err := o.CheckMerge(more); !fault.Is(err, fault.Unsupported) {
		t.Errorf("five pages fit into four: %v", err)
	}
	if err := more.Close(); err != nil || read(o, 2) != "fresh" {
		t.Errorf("closing the layer above closed the one beneath: %v", err)
	}
}
