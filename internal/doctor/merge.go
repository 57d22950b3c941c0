package doctor

import (
	"cmp"
	"slices"
)

// Merge returns groups that look at one thing each, such as a folder, as one that looks at all of
// them: checks of one code stand side by side. Each needs only those of its own thing: what fails
// of one says nothing of the others.
func Merge(groups ...[]Check) []Check {
	var all []Check
	rank := map[string]int{} // of codes, as they first appear
	for i, g := range groups {
		for _, c := range g {
			if _, had := rank[c.Code]; !had {
				rank[c.Code] = len(rank)
			}
			c.thing = i + 1
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b Check) int { return cmp.Compare(rank[a.Code], rank[b.Code]) })
	return all
}
