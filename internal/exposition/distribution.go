package exposition

import "slices"

// LatencyBounds are the upper bounds, in seconds, that Prometheus suggests for durations of requests.
var LatencyBounds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// Distribution counts observations by their size, for a histogram. It is not safe for concurrent use.
type Distribution struct {
	bounds []float64 // upper bounds of the buckets, ascending
	counts []uint64  // observations of each bucket alone
	count  uint64    // number of all observations
	sum    float64   // sum of all observations
}

// NewDistribution returns an empty distribution with buckets of these upper bounds, which ascend.
func NewDistribution(bounds []float64) *Distribution {
	return &Distribution{bounds: bounds, counts: make([]uint64, len(bounds))}
}

// Observe counts one observation.
func (d *Distribution) Observe(v float64) {
	d.count++
	d.sum += v
	if i, _ := slices.BinarySearch(d.bounds, v); i < len(d.bounds) { // a bucket includes its bound
		d.counts[i]++
	}
}

// Metric returns the histogram of all observations until now. Its buckets are cumulative.
func (d *Distribution) Metric(labels ...string) Metric {
	m := Metric{Labels: labels, Value: d.sum, Count: d.count}
	below := uint64(0)
	for i, bound := range d.bounds {
		below += d.counts[i]
		m.Points = append(m.Points, Point{bound, float64(below)})
	}
	return m
}
