package bitmap

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

const grain = 10

// model is a simple bitmap with one bool per grain.
type model []bool

func (m model) next(r disk.Range) disk.Range {
	for off := r.Off; off < r.End(); off++ {
		if !m[off/grain] {
			continue
		}
		end := off
		for end < r.End() && m[end/grain] {
			end++
		}
		return disk.Range{Off: off, Len: end - off}
	}
	return disk.Range{Off: r.End()}
}

func TestBitmapAgreesWithModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int64{1, grain, 64*grain - 3, 64 * grain, 1000*grain + 1} {
		b, m := New(size, grain), make(model, (size+grain-1)/grain)
		for range 2000 {
			off := rnd.Int64N(size)
			r := disk.Range{Off: off, Len: rnd.Int64N(min(size-off, 300) + 1)}
			applyAndCompare(t, rnd.IntN(3), b, m, r, size)
		}
	}
}

// applyAndCompare applies one operation to the bitmap and the model, and compares them.
func applyAndCompare(t *testing.T, op int, b *Bitmap, m model, r disk.Range, size int64) {
	t.Helper()
	switch op {
	case 0:
		b.Set(r)
	case 1:
		b.Clear(r)
	default:
		if got, want := b.Next(r), m.next(r); got != want {
			t.Fatalf("next of %v in %d: got %v, want %v", r, size, got, want)
		}
	}
	for i := range m {
		g := disk.Range{Off: int64(i) * grain, Len: min(grain, size-int64(i)*grain)}
		shared := g.Intersect(r).Len
		if op == 0 && shared > 0 {
			m[i] = true
		}
		if op == 1 && shared == g.Len {
			m[i] = false
		}
		if b.Has(g.Off) != m[i] {
			t.Fatalf("op %d on %v: grain %v is %v, want %v", op, r, g, b.Has(g.Off), m[i])
		}
	}
}

func TestConcurrentSetsLoseNoBits(t *testing.T) {
	b := New(6400, 1)
	var wg sync.WaitGroup
	for i := range int64(8) {
		wg.Go(func() {
			for off := i; off < 6400; off += 8 {
				b.Set(disk.Range{Off: off, Len: 1})
			}
		})
	}
	wg.Wait()
	if got := b.Next(disk.Range{Len: 6400}); got.Len != 6400 {
		t.Errorf("first run is %v, want all 6400 bytes", got)
	}
}
