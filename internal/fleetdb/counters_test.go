package fleetdb

import (
	"testing"
	"time"
)

// Each attempt, failure, duration, outage and rate is counted once. The database keeps the counters when the process
// ends. The bytes of a dropped plan are removed.
func TestTotalsCountEachAttemptOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		clock := newClock()
		p.now = clock.Now
		ctx, f := t.Context(), newFleet(t, p.open(), 4)
		begin := func(i int) Claim {
			vms := ok(f.Scheduling.Grant(ctx, f.sched, []Granted{{key(i), "w1", time.Hour}}))(t)
			c := Claim{vms[0].Key, "w1", vms[0].Epoch}
			must(t, f.Claims.Begin(ctx, c, []string{"id"}))
			return c
		}
		first := begin(1)
		must(t, f.Progress.Report(ctx, f.workers["w1"], []Progress{{Key: key(1), Read: 70}}, map[string]int64{"p": 70, "gone": 5}))
		must(t, f.Claims.Finish(ctx, first, End{State: Queued, Failure: &Failure{Kind: "transient"}}))
		again := begin(1)
		must(t, f.Progress.Report(ctx, f.workers["w1"], []Progress{{Key: key(1), Read: 30}}, map[string]int64{"p": 30}))
		clock.advance(50 * time.Second)
		done := End{State: Done, Summary: Summary{Outage: 45 * time.Second, Rates: []float64{60e6, 5e9}}}
		must(t, f.Claims.Finish(ctx, again, done))
		must(t, f.Claims.Finish(ctx, again, done)) // the response was lost
		must(t, f.Claims.Finish(ctx, begin(2), End{State: Failed, Failure: &Failure{Kind: "denied"}}))
		must(t, f.Claims.Finish(ctx, begin(3), End{State: Queued}))
		must(t, f.Claims.Finish(ctx, begin(3), End{State: Canceled}))
		if err := f.Claims.Finish(ctx, first, End{State: Failed, Failure: &Failure{Kind: "full"}}); err == nil {
			t.Error("Finish with an old claim succeeded")
		}

		r := p.open() // another process
		got := ok(r.Counters.Totals(ctx))(t)
		if got.Read["p"] != 100 || len(got.Read) != 1 {
			t.Errorf("read %v", got.Read)
		}
		for result, n := range map[AttemptResult]uint64{AttemptDone: 1, AttemptFailed: 1, AttemptRetried: 1, AttemptReturned: 1, AttemptCanceled: 1} {
			if got.Attempts[result] != n {
				t.Errorf("%d attempts are %s, want %d", got.Attempts[result], result, n)
			}
		}
		if len(got.Failures) != 2 || got.Failures["transient"] != 1 || got.Failures["denied"] != 1 {
			t.Errorf("failures %v", got.Failures)
		}
		durations := got.Cold
		if ok(r.VMs.Get(ctx, key(1)))(t).Warm {
			durations = got.Warm
		}
		if durations.Counts[0] != 1 || durations.Sum != 50 {
			t.Errorf("durations %+v", durations)
		}
		if got.Outages.Counts[2] != 1 || got.Outages.Sum != 45 {
			t.Errorf("outages %+v", got.Outages)
		}
		if got.Rates.Counts[5] != 1 || got.Rates.Counts[len(RateBounds)] != 1 || got.Rates.Sum != 5.06e9 {
			t.Errorf("rates %+v", got.Rates)
		}
		must(t, f.Claims.Finish(ctx, begin(4), End{State: Done}))
		must(t, f.Plans.SetState(ctx, "p", PlanEnded, nil))
		must(t, f.Plans.Drop(ctx, "p"))
		if got := ok(r.Counters.Totals(ctx))(t); len(got.Read) != 0 || got.Attempts[AttemptDone] != 2 {
			t.Errorf("after the plan is dropped: read %v, attempts %v", got.Read, got.Attempts)
		}
	})
}

// A bucket of another release counts for the next higher bound of this one.
func TestBucketsOfAnotherReleaseAreKept(t *testing.T) {
	totals := newTotals()
	for label, n := range map[string]float64{"30": 2, "40": 3, "1e9": 1, infiniteBound: 4, sumLabel: 99} {
		totals.add(outageCounter, label, n)
	}
	h := totals.Outages
	if h.Counts[1] != 2 || h.Counts[2] != 3 || h.Counts[len(OutageBounds)] != 5 || h.Sum != 99 {
		t.Errorf("the histogram is %+v", h)
	}
	totals.add("unknown", "x", 1)
}
