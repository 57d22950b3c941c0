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

// An overlay without writes has the content of the disk, and so has one to which all data was written.
func TestConformance(t *testing.T) {
	disktest.TestSource(t, func(_ *testing.T, want disk.Source) disk.Source { return New(want, 1<<30) })
}

func TestConformanceOfWrittenData(t *testing.T) {
	disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
		o := New(emptyDisk{want}, 1<<30)
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

// emptyDisk is a disk of the same size without data.
type emptyDisk struct{ disk.Source }

func (e emptyDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	clear(p)
	return e.Source.ReadAt(ctx, p[:0], off)
}

func (e emptyDisk) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r, Kind: disk.Zero}}, nil
}

// Random writes read back like writes to a slice, and the disk below stays unchanged. Applying the changes to a copy
// of the disk gives the same content.
func TestWritesStayInTheOverlay(t *testing.T) {
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
		t.Errorf("the copy with the changes differs, error %v", err)
	}
	if left := memory(make([]byte, size)); base.ReadAt(t.Context(), left, 0) != nil || bytes.Equal(left, want) {
		t.Error("the disk below has changed")
	}
}

func TestChangedRanges(t *testing.T) {
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

func TestOverlayRefusesWritesBeyondLimit(t *testing.T) {
	o := New(disk.NewSparsePattern(1<<20, 0.5, 3), 2*PageSize)
	if err := o.WriteAt(t.Context(), make([]byte, 2*PageSize), 0); err != nil {
		t.Fatal(err)
	}
	if err := o.WriteAt(t.Context(), make([]byte, 10), 5*PageSize); !fault.Is(err, fault.Unsupported) {
		t.Errorf("write beyond the limit: got %v, want an unsupported error", err)
	}
	if err := o.WriteAt(t.Context(), make([]byte, 10), 7); err != nil {
		t.Errorf("write to a page that is already in the overlay: %v", err)
	}
	if len(o.Changed()) != 1 {
		t.Errorf("changed %v, want one range", o.Changed())
	}
}

func TestSliceBounds(t *testing.T) {
	o := New(disk.NewSparsePattern(1<<20, 0.5, 3), 1<<20)
	s := o.Slice(t.Context(), 8192, 4096)
	if _, err := s.WriteAt([]byte("within"), 4090); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteAt([]byte("without"), 4090); err == nil {
		t.Error("a write beyond the slice succeeds")
	}
	if _, err := s.ReadAt(make([]byte, 5000), 0); err == nil {
		t.Error("a read beyond the slice succeeds")
	}
	p := make([]byte, 6)
	if err := o.ReadAt(t.Context(), p, 8192+4090); err != nil || string(p) != "within" {
		t.Errorf("read %q, want %q, error %v", p, "within", err)
	}
}

// memory is an image in memory.
type memory []byte

func (m memory) WriteAt(_ context.Context, p []byte, off int64) error {
	copy(m[off:], p)
	return nil
}

// Writes to a layer are visible only there. Merge applies all of them, and CheckMerge refuses a layer that does not
// fit.
func TestLayers(t *testing.T) {
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
		t.Error("a write to the layer is visible in the overlay below")
	}
	if err := o.CheckMerge(above); err != nil {
		t.Fatal(err)
	}
	o.Merge(above)
	if read(o, 1) != "above" || read(o, 2) != "fresh" || len(above.Changed()) != 0 {
		t.Error("Merge did not apply the writes of the layer")
	}
	more := o.NewLayer()
	for page := range int64(3) {
		write(more, "more.", 10+page)
	}
	if err := o.CheckMerge(more); !fault.Is(err, fault.Unsupported) {
		t.Errorf("CheckMerge of five pages into four: got %v, want an unsupported error", err)
	}
	if err := more.Close(); err != nil || read(o, 2) != "fresh" {
		t.Errorf("closing the layer closes the overlay below: %v", err)
	}
}
