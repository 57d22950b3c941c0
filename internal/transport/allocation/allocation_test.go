package allocation

import (
	"math/rand/v2"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

// The merged runs cover all given ranges and only little more.
func TestMergerCoversAllRangesWithLittleExtra(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		var m merger
		var given []disk.Range
		var at, sum int64
		for range 3000 {
			at += 512 * rnd.Int64N(1<<uint(rnd.IntN(14)))
			r := disk.Range{Off: at, Len: 512 * (1 + rnd.Int64N(1<<uint(rnd.IntN(14))))}
			at = r.End()
			given, sum = append(given, r), sum+r.Len
			m.add(r)
		}
		var merged int64
		for i, r := range m.runs {
			merged += r.Len
			if i > 0 && r.Off <= m.runs[i-1].End() {
				t.Fatalf("seed %d: runs %v and %v touch", seed, m.runs[i-1], r)
			}
		}
		if extra := merged - sum; extra < 0 || extra > sum/mergeShare {
			t.Errorf("seed %d: the runs have %d bytes more than the %d given, want at most %d more", seed, extra, sum, sum/mergeShare)
		}
		for _, r := range given {
			if e := disk.Describe(r, m.runs); len(e) != 1 || e[0].Kind != disk.Data {
				t.Fatalf("seed %d: %v is described as %v", seed, r, e)
			}
		}
	}
}

func TestSamplesAreInGaps(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		p := disk.NewSparsePattern(4<<30, rnd.Float64(), seed)
		extents, _ := p.Extents(t.Context(), disk.Range{Len: p.Size()})
		var runs []disk.Range
		var allocated, sampled int64
		for _, e := range extents {
			if e.Kind == disk.Data {
				runs = append(runs, e.Range)
				allocated += e.Len
			}
		}
		for _, r := range pickSamples(runs, p.Size(), rnd) {
			sampled += r.Len
			if e := disk.Describe(r, runs); r.Empty() || r.End() > p.Size() || len(e) != 1 || e[0].Kind != disk.Zero {
				t.Fatalf("seed %d: sample %v is described as %v", seed, r, e)
			}
		}
		if sampled > max(allocated/sampleShare, leastSamples*sampleSize) {
			t.Errorf("seed %d: %d bytes sampled, too many for %d allocated", seed, sampled, allocated)
		}
	}
	if s := pickSamples([]disk.Range{{Len: 1 << 20}}, 1<<20, nil); s != nil {
		t.Errorf("samples %v of a disk without gaps, want none", s)
	}
}
