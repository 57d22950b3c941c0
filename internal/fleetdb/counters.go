package fleetdb

import (
	"context"
	"database/sql"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// Upper bounds of the histograms in Totals. Rows of other bounds, which another release wrote, count in
// the next bound.
var (
	DurationBounds = []float64{60, 300, 900, 1800, 3600, 2 * 3600, 4 * 3600, 8 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600} // seconds
	OutageBounds   = []float64{10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 2 * 3600, 4 * 3600}                                 // seconds
	RateBounds     = []float64{1e6, 5e6, 10e6, 25e6, 50e6, 100e6, 200e6, 400e6, 800e6, 1600e6, 3200e6}                          // bytes per second
)

// AttemptResult is how an attempt at a VM ended. The values are labels of metrics.
type AttemptResult string

// Results of attempts.
const (
	AttemptDone     AttemptResult = "done"     // the VM is published
	AttemptFailed   AttemptResult = "failed"   // the VM failed, until an operator retries it
	AttemptRetried  AttemptResult = "retried"  // the attempt failed, and another one follows
	AttemptReturned AttemptResult = "returned" // the worker stopped before the end, and another attempt follows
	AttemptCanceled AttemptResult = "canceled" // a user canceled the VM
)

// AttemptResults are all results of attempts.
var AttemptResults = []AttemptResult{AttemptDone, AttemptFailed, AttemptRetried, AttemptReturned, AttemptCanceled}

// result returns the result of an attempt that ended with e.
func (e End) result() AttemptResult {
	switch {
	case e.State == Done:
		return AttemptDone
	case e.State == Failed:
		return AttemptFailed
	case e.State == Canceled:
		return AttemptCanceled
	case e.Failure != nil:
		return AttemptRetried
	}
	return AttemptReturned
}

// Summary is the result of a published VM.
type Summary struct {
	Outage time.Duration // time that the VM of a warm run was off; 0 if unknown
	Rates  []float64     // bytes per second that were read from the source, for each copied disk
}

// Histogram counts values by upper bounds.
type Histogram struct {
	Bounds []float64 // upper bounds, ascending, without the infinite one
	Counts []uint64  // values between each bound and the one below it; the last count is above all bounds
	Sum    float64   // sum of all values
}

// Totals are the sums over all VMs that the fleet database ever had. Processes that end do not change
// them.
type Totals struct {
	Read     map[string]int64         // bytes that were read from sources, by plan, without dropped plans
	Attempts map[AttemptResult]uint64 // ended attempts, by result
	Failures map[string]uint64        // failed attempts, by the name of the fault.Kind
	Cold     Histogram                // seconds from the first attempt to the publication of cold runs
	Warm     Histogram                // the same of warm runs
	Outages  Histogram                // seconds that VMs of warm runs were off
	Rates    Histogram                // bytes per second of each copied disk of published VMs
}

// newTotals returns totals that are all 0.
func newTotals() Totals {
	empty := func(bounds []float64) Histogram {
		return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
	}
	return Totals{
		Read: map[string]int64{}, Attempts: map[AttemptResult]uint64{}, Failures: map[string]uint64{},
		Cold: empty(DurationBounds), Warm: empty(DurationBounds), Outages: empty(OutageBounds), Rates: empty(RateBounds),
	}
}

// Names of counters in the table.
const (
	readCounter    = "read"     // label: plan
	attemptCounter = "attempts" // label: AttemptResult
	failureCounter = "failures" // label: name of the fault.Kind
	coldCounter    = "cold"     // label of this and the next counters: upper bound, or sumLabel
	warmCounter    = "warm"
	outageCounter  = "outage"
	rateCounter    = "rate"
	sumLabel       = "sum"
	infiniteBound  = "+Inf"
)

// Counters are the totals of the fleet.
type Counters struct{ db *database }

// Totals returns the current totals.
func (s *Counters) Totals(ctx context.Context) (Totals, error) {
	type row struct {
		name, label string
		value       float64
	}
	scan := func(from scanner) (r row, err error) { return r, from.Scan(&r.name, &r.label, &r.value) }
	t := newTotals()
	err := s.db.readTx(ctx, "read counters", func(ctx context.Context, x *sql.Tx) error {
		rows, err := queryAll(ctx, x, scan, `SELECT name, label, value FROM counters`)
		t = newTotals()
		for _, r := range rows {
			t.add(r.name, r.label, r.value)
		}
		return err
	})
	return t, err
}

// add adds one row. Rows of unknown names are left out.
func (t *Totals) add(name, label string, value float64) {
	switch name {
	case readCounter:
		t.Read[label] += int64(value)
	case attemptCounter:
		t.Attempts[AttemptResult(label)] += uint64(value)
	case failureCounter:
		t.Failures[label] += uint64(value)
	case coldCounter:
		t.Cold.add(label, value)
	case warmCounter:
		t.Warm.add(label, value)
	case outageCounter:
		t.Outages.add(label, value)
	case rateCounter:
		t.Rates.add(label, value)
	}
}

// add adds one row of the histogram.
func (h *Histogram) add(label string, value float64) {
	if label == sumLabel {
		h.Sum += value
		return
	}
	bound, err := strconv.ParseFloat(label, 64)
	if err != nil {
		bound = math.Inf(1)
	}
	i, _ := slices.BinarySearch(h.Bounds, bound)
	h.Counts[i] += uint64(value)
}

// addCounter adds a value to a counter.
func (x *tx) addCounter(name, label string, value float64) error {
	_, err := x.exec(`INSERT INTO counters (name, label, value) VALUES ($1, $2, $3)
		ON CONFLICT (name, label) DO UPDATE SET value = counters.value + excluded.value`, name, label, value)
	return err
}

// observe counts a value in a histogram.
func (x *tx) observe(name string, bounds []float64, value float64) error {
	label := infiniteBound
	if i, _ := slices.BinarySearch(bounds, value); i < len(bounds) {
		label = strconv.FormatFloat(bounds[i], 'g', -1, 64)
	}
	if err := x.addCounter(name, label, 1); err != nil {
		return err
	}
	return x.addCounter(name, sumLabel, value)
}

// countEnd counts the end of an attempt at a VM whose first attempt began at began.
func (x *tx) countEnd(end End, warm bool, began int64) error {
	if err := x.addCounter(attemptCounter, string(end.result()), 1); err != nil {
		return err
	}
	if end.Failure != nil {
		if err := x.addCounter(failureCounter, end.Failure.Kind, 1); err != nil {
			return err
		}
	}
	if end.State != Done || began == 0 {
		return nil
	}
	name := coldCounter
	if warm {
		name = warmCounter
	}
	if err := x.observe(name, DurationBounds, float64(x.now-began)/1e6); err != nil {
		return err
	}
	return x.countSummary(end.Summary)
}

// countSummary counts the outage and the rates of a published VM.
func (x *tx) countSummary(s Summary) error {
	if s.Outage > 0 {
		if err := x.observe(outageCounter, OutageBounds, s.Outage.Seconds()); err != nil {
			return err
		}
	}
	for _, rate := range s.Rates {
		if err := x.observe(rateCounter, RateBounds, rate); err != nil {
			return err
		}
	}
	return nil
}

// countRead adds bytes that were read from sources, by plan. Dropped plans are left out.
func (x *tx) countRead(read map[string]int64) error {
	for _, plan := range slices.Sorted(maps.Keys(read)) {
		_, err := x.exec(`INSERT INTO counters (name, label, value) SELECT $1, name, $3 FROM plans WHERE name = $2
			ON CONFLICT (name, label) DO UPDATE SET value = counters.value + excluded.value`, readCounter, plan, float64(read[plan]))
		if err != nil {
			return err
		}
	}
	return nil
}
