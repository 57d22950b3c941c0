package report

import "math"

// heat is where a rate stands between the least and the most, by their logarithms.
func heat(v, least, most float64) string {
	if !(least > 0) || most <= least {
		return width(1)
	}
	return width(math.Log(v/least) / math.Log(most/least))
}
