package esx

import (
	"cmp"
	"slices"

	"github.com/decamp/decamp/internal/disk"
)

// cover turns areas in use, in any order and overlapping or not, into extents that
// describe r: data in the areas, zero between them.
func cover(r disk.Range, areas []disk.Range) []disk.Extent { return disk.Describe(r, merge(r, areas)) }

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
