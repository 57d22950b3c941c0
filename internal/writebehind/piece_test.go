package writebehind

import (
	"math/rand/v2"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

// FuzzPieces adds random overlapping pieces. Three bytes of the input select the offset and the length of a piece, and
// whether it is zeros. The content of the pieces agrees with a slice of bytes, and all buffers are returned.
func FuzzPieces(f *testing.F) {
	f.Add([]byte{0, 10, 1, 5, 10, 1, 2, 3, 0})
	f.Add([]byte{10, 50, 1, 20, 5, 1, 0, 255, 0, 30, 1, 1})
	f.Add([]byte{1, 1, 1, 3, 1, 1, 5, 1, 1, 0, 7, 1})
	seed := make([]byte, 300)
	rnd := rand.New(rand.NewPCG(4, 4))
	for i := range seed {
		seed[i] = byte(rnd.IntN(256))
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, ops []byte) {
		const base, size = 5000, 512 // offsets need not begin at 0
		pool := NewPool(MinBudget)
		var ps pieces
		want, covered := make([]byte, size), make([]bool, size)
		total := int64(0)
		for i := 0; i+2 < len(ops) && i < 3*400; i += 3 {
			off, n := int64(ops[i]), int64(ops[i+1])+1
			p := piece{Range: disk.Range{Off: base + off, Len: n}}
			id := byte(0)
			if ops[i+2]%2 == 1 {
				id = byte(i/3 + 1)
				p.from = mustGet(t, pool, int(n)+7)
				p.at = 7
				copy(p.from.Bytes(), repeatByte(7, 255))
				copy(p.from.Bytes()[7:], repeatByte(int(n), id))
			}
			total += ps.add(p)
			for j := off; j < off+n; j++ {
				want[j], covered[j] = id, true
			}
			wantPieces(t, ps, base, want, covered, total)
		}
		ps.release()
		if len(ps) > 0 || pool.Lent() != 0 {
			t.Fatalf("%d pieces and %d lent bytes remain", len(ps), pool.Lent())
		}
	})
}

func wantPieces(t *testing.T, ps pieces, base int64, want []byte, covered []bool, total int64) {
	t.Helper()
	end, sum := int64(0), int64(0)
	for _, p := range ps {
		if p.Empty() || p.Off < end {
			t.Fatalf("pieces %v: not in order, or empty", ps)
		}
		end = p.End()
		sum += p.Len
	}
	if sum != total {
		t.Fatalf("%d bytes are covered, add returned %d", sum, total)
	}
	r := disk.Range{Off: base, Len: int64(len(want))}
	got := repeatByte(len(want), 254)
	ps.copyTo(got, base)
	_ = ps.eachGap(r, func(g disk.Range) error {
		for off := g.Off; off < g.End(); off++ {
			if covered[off-base] {
				t.Fatalf("byte %d is covered and in a gap", off)
			}
			got[off-base] = 0
		}
		return nil
	})
	wantBytes(t, "pieces", got, want, base)
}
