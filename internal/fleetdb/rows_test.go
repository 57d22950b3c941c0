package fleetdb

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Whatever is done in whatever order, by whomever, a row never contradicts itself, and nothing
// fails but for reasons that are the caller's.
func TestRowsNeverContradictThemselves(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		done, deeds := map[string]int{}, 0
		for seed := range uint64(3) {
			clock := newClock()
			p.now = clock.Now
			a := &anybody{fleet: newFleet(t, p.open(), 6), clock: clock, rng: rand.New(rand.NewPCG(seed, 1)), last: map[Key]VM{}, done: done}
			for range 150 {
				a.act()
				a.check()
			}
			must(t, a.Plans.SetState(t.Context(), "p", PlanEnded, nil))
			must(t, a.Plans.Drop(t.Context(), "p"))
			deeds = len(a.deeds())
		}
		if len(done) < deeds {
			t.Errorf("of %d deeds only %v ever came true", deeds, done)
		}
	})
}

// anybody does what any process of a fleet may do, with claims and leases that may be old.
type anybody struct {
	*fleet
	clock  *clock
	rng    *rand.Rand
	claims []Claim
	last   map[Key]VM
	deed   string
	done   map[string]int
}

type deed struct {
	name  string
	often int
	do    func() error
}

func (a *anybody) deeds() []deed {
	ctx := a.t.Context()
	k, worker, c := key(1+a.rng.IntN(6)), fmt.Sprint("w", 1+a.rng.IntN(2)), a.claim()
	order := []Command{GoOn, Pause, CutOver, Cancel, Rollback, Retry, Retry}[a.rng.IntN(7)]
	ends := []End{{State: Done}, {State: Failed, Failure: &Failure{}}, {State: Canceled}, {State: Queued}, {State: Queued, Failure: &Failure{}, NotBefore: a.clock.Now()}}
	return []deed{
		{"grant", 6, func() error {
			vms, err := a.Scheduling.Grant(ctx, a.sched, []Granted{{k, worker, time.Hour}})
			for _, v := range vms {
				a.claims = append(a.claims, Claim{v.Key, v.Worker, v.Epoch})
			}
			return err
		}},
		{"begin", 4, func() error { return a.Claims.Begin(ctx, c, []string{"id"}) }},
		{"ask", 3, func() error { return a.Claims.RequestTransfer(ctx, c, Again, time.Hour) }},
		{"give back", 3, func() error { return a.Claims.EndTransfer(ctx, c) }},
		{"finish", 2, func() error { return a.Claims.Finish(ctx, c, ends[a.rng.IntN(len(ends))]) }},
		{"order", 2, func() error { return a.VMs.SetCommand(ctx, k, order) }},
		{"order plan", 1, func() error { return a.Plans.SetCommand(ctx, "p", order) }},
		{"requeue", 1, func() error { return a.Scheduling.Requeue(ctx, a.sched, []Key{k}, "gone") }},
		{"strand", 1, func() error { return a.Scheduling.MarkStranded(ctx, a.sched, []Key{k}, "gone") }},
		{"rehearse", 4, func() error { return a.Rehearsals.Request(ctx, k, Rehearsal{ID: fmt.Sprint(a.clock.Now().Unix())}) }},
		{"answer", 2, func() error {
			v, err := a.VMs.Get(ctx, c.Key)
			if err != nil || v.Rehearse == nil {
				return err
			}
			return a.Rehearsals.Answer(ctx, c, Rehearsed{Rehearsal: *v.Rehearse})
		}},
		{"leave", 1, func() error { return a.Workers.Leave(ctx, a.workers[worker]) }},
		{"join", 2, func() (err error) {
			a.workers[worker], err = a.Workers.Join(ctx, Worker{Name: worker}, aMinute)
			return err
		}},
		{"add", 1, func() error { return a.VMs.Add(ctx, someVMs("p", 8)) }},
		{"end", 1, func() error {
			return a.Plans.SetState(ctx, "p", []PlanState{PlanRunning, PlanEnded}[a.rng.IntN(2)], nil)
		}},
	}
}

func (a *anybody) claim() Claim {
	if len(a.claims) == 0 {
		return Claim{Key: key(1), Worker: "w1"}
	}
	return a.claims[len(a.claims)-1-a.rng.IntN(min(len(a.claims), 4))]
}

func (a *anybody) act() {
	a.t.Helper()
	a.clock.pass(time.Second)
	var all []deed
	for _, d := range a.deeds() {
		all = append(all, slices.Repeat([]deed{d}, d.often)...)
	}
	d := all[a.rng.IntN(len(all))]
	err := d.do()
	if err != nil && !errors.Is(err, ErrFenced) && !fault.Is(err, fault.Conflict) {
		a.t.Fatalf("%s: %v", d.name, err)
	}
	if a.deed = d.name; err == nil {
		a.done[d.name]++
	}
}

func (a *anybody) check() {
	a.t.Helper()
	n := 0
	for _, v := range ok(a.VMs.List(a.t.Context(), Query{}))(a.t) {
		if why := contradiction(v); why != "" {
			a.t.Fatalf("after %s %s: %+v", a.deed, why, v)
		}
		if old := a.last[v.Key]; v.Epoch < old.Epoch || v.Rev < old.Rev || v.Epoch > old.Epoch+1 {
			a.t.Fatalf("after %s: %+v, before %+v", a.deed, v, old)
		}
		a.last[v.Key] = v
		n++
	}
	total := 0
	for _, of := range ok(a.Plans.Get(a.t.Context(), "p"))(a.t).Counts {
		total += of
	}
	if total != n {
		a.t.Fatalf("after %s: %d VMs are counted, there are %d", a.deed, total, n)
	}
}

// contradiction says what is wrong with a row.
func contradiction(v VM) string {
	driven := v.State == Assigned || v.State == Running
	switch {
	case v.Granted && !driven:
		return "nobody drives what holds slots"
	case v.Granted && v.Requested != NoTransfer:
		return "it asks for what it holds"
	case v.Granted != !v.Since.IsZero():
		return "since when it holds is not known"
	case v.State == Queued && (v.Requested == First) != v.Began.IsZero():
		return "what is queued asks for the wrong thing"
	case v.State == Queued && v.Requested == NoTransfer:
		return "what is queued asks for nothing"
	case v.State.IsFinal() && v.Requested != NoTransfer:
		return "what is over asks"
	case v.State.IsFinal() && v.Rehearse != nil:
		return "what is over is rehearsed"
	case v.State.IsFinal() == v.Ended.IsZero():
		return "what has an end is not over"
	case driven && (v.Worker == "" || v.Epoch == 0):
		return "no worker executes it"
	case v.State == Running && v.Began.IsZero():
		return "it runs and never began"
	}
	return ""
}
