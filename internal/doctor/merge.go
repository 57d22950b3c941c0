package doctor

import "context"

// Merge returns groups that look at one thing each, such as a folder, as one group that looks at all
// of them: checks of the same code become one. What fails of one thing keeps what needs it from being
// looked at of the others, too.
func Merge(groups ...[]Check) []Check {
	var all []Check
	at := map[string]int{}
	for _, g := range groups {
		for _, c := range g {
			i, had := at[c.Code]
			if !had {
				at[c.Code] = len(all)
				all = append(all, c)
				continue
			}
			all[i].Run = both(all[i].Run, c.Run)
		}
	}
	return all
}

func both(a, b func(context.Context) []Finding) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding { return append(a(ctx), b(ctx)...) }
}
