package allocation

import (
	"math/rand/v2"
	"sort"

	"github.com/decamp/decamp/internal/disk"
)

const (
	sampleSize  = 16 << 10 // bytes of a sample: one TLS record
	mostSamples = 64       // highest number of samples
	// lowest number of samples, even if little is allocated
	leastSamples = 4
	// sampleShare bounds the samples to 1/sampleShare of the allocated bytes.
	sampleShare = 512
)

// pickSamples returns ranges outside of runs, to be read. Half of them are at random free bytes: they
// detect a map that ends early or lacks an area. The others are at the ends of gaps: they detect a map
// with the wrong granularity. The disk's own ends come first, because partition tables are there.
func pickSamples(runs []disk.Range, size int64, rnd *rand.Rand) []disk.Range {
	gaps := gapsBetween(runs, size)
	if len(gaps) == 0 {
		return nil
	}
	count := sampleCount(runs)
	picks := diskEdges(gaps, size)
	for i := len(picks); i < count; i++ {
		if i%2 == 0 {
			picks = append(picks, randomSample(gaps, rnd))
		} else {
			picks = append(picks, gapSample(gaps[rnd.IntN(len(gaps))], rnd.IntN(2) == 0))
		}
	}
	return picks
}

// sampleCount returns the number of samples for a map with these runs.
func sampleCount(runs []disk.Range) int {
	var allocated int64
	for _, r := range runs {
		allocated += r.Len
	}
	return int(min(max(allocated/sampleShare/sampleSize, leastSamples), mostSamples))
}

// gapsBetween returns the ranges of the disk outside of runs.
func gapsBetween(runs []disk.Range, size int64) []disk.Range {
	var gaps []disk.Range
	for _, e := range disk.Describe(disk.Range{Len: size}, runs) {
		if e.Kind == disk.Zero {
			gaps = append(gaps, e.Range)
		}
	}
	return gaps
}

// diskEdges returns the first and the last bytes of the disk, each if it is in a gap.
func diskEdges(gaps []disk.Range, size int64) []disk.Range {
	var out []disk.Range
	if first := gaps[0]; first.Off == 0 {
		out = append(out, gapSample(first, false))
	}
	if last := gaps[len(gaps)-1]; last.End() == size {
		out = append(out, gapSample(last, true))
	}
	return out
}

// gapSample returns a sample at the start or, if end is set, at the end of a gap.
func gapSample(gap disk.Range, end bool) disk.Range {
	n := min(gap.Len, sampleSize)
	if end {
		return disk.Range{Off: gap.End() - n, Len: n}
	}
	return disk.Range{Off: gap.Off, Len: n}
}

// randomSample returns a sample at a random free byte. All free bytes have the same probability.
func randomSample(gaps []disk.Range, rnd *rand.Rand) disk.Range {
	ends := make([]int64, len(gaps)) // free bytes up to and including each gap
	var free int64
	for i, g := range gaps {
		free += g.Len
		ends[i] = free
	}
	at := rnd.Int64N(free)
	gap := gaps[sort.Search(len(ends), func(i int) bool { return ends[i] > at })]
	off := gap.Off + rnd.Int64N(gap.Len)
	off -= off % disk.SectorSize
	off = max(off, gap.Off)
	return disk.Range{Off: off, Len: min(sampleSize, gap.End()-off)}
}
