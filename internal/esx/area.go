package esx

import (
	"cmp"
	"slices"

	"github.com/decamp/decamp/internal/disk"
)

// cover turns areas in use, in any order and overlapping or not, into extents that
// describe r in order and without gaps: data in the areas, zero between them.
func cover(r disk.Range, areas []disk.Range) []disk.Extent {
	var out []disk.Extent
	at := r.Off
	for _, a := range merge(r, areas) {
		if a.Off > at {
			out = append(out, disk.Extent{Range: disk.Range{Off: at, Len: a.Off - at}, Kind: disk.Zero})
		}
		out = append(out, disk.Extent{Range: a, Kind: disk.Data})
		at = a.End()
	}
	if at < r.End() {
		out = append(out, disk.Extent{Range: disk.Range{Off: at, Len: r.End() - at}, Kind: disk.Zero})
	}
	return out
}

// merge returns the areas' bytes within r as sorted ranges that do not touch.
func merge(r disk.Range, areas []disk.Range) []disk.Range {
	var in []disk.Range
	for _, a := range areas {
		if a = a.Intersect(r); !a.Empty() {
			in = append(in, a)
		}
	}
	slices.SortFunc(in, func(a, b disk.Range) int { return cmp.Compare(a.Off, b.Off) })
	out := in[:0]
	for _, a := range in {
		if n := len(out); n > 0 && a.Off <= out[n-1].End() {
			out[n-1].Len = max(out[n-1].End(), a.End()) - out[n-1].Off
			continue
		}
		out = append(out, a)
	}
	return out
}
