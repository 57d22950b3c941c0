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

// Random actions of all processes, in random order, leave only consistent rows. An action fails only with a conflict.
func TestRowsStayConsistent(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		done, actions := map[string]int{}, 0
		for seed := range uint64(3) {
			clock := newClock()
			p.now = clock.Now
			a := &randomActor{fleet: newFleet(t, p.open(), 6), clock: clock, rng: rand.New(rand.NewPCG(seed, 1)), last: map[Key]VM{}, done: done}
			for range 150 {
				a.runRandomAction()
				a.checkRows()
			}
			must(t, a.Plans.SetState(t.Context(), "p", PlanEnded, nil))
			must(t, a.Plans.Drop(t.Context(), "p"))
			actions = len(a.actions())
		}
		if len(done) < actions {
			t.Errorf("only these of %d actions succeeded: %v", actions, done)
		}
	})
}

// A randomActor runs the actions of all processes of a fleet in random order. Its claims and leases may be old.
type randomActor struct {
	*fleet
	clock  *fakeClock
	rng    *rand.Rand
	claims []Claim
	last   map[Key]VM     // rows after the last action
	action string         // name of the last action
	done   map[string]int // successful actions by name
}

type action struct {
	name   string
	weight int // relative frequency
	run    func() error
}

func (a *randomActor) actions() []action {
	ctx := a.t.Context()
	k, worker, c := key(1+a.rng.IntN(6)), fmt.Sprint("w", 1+a.rng.IntN(2)), a.pickClaim()
	command := []Command{GoOn, Pause, CutOver, Cancel, Rollback, Retry, Retry}[a.rng.IntN(7)]
	ends := []End{{State: Done}, {State: Failed, Failure: &Failure{}}, {State: Canceled}, {State: Queued}, {State: Queued, Failure: &Failure{}, NotBefore: a.clock.Now()}}
	return []action{
		{"grant", 6, func() error {
			vms, err := a.Scheduling.Grant(ctx, a.sched, []Granted{{k, worker, time.Hour}})
			for _, v := range vms {
				a.claims = append(a.claims, Claim{v.Key, v.Worker, v.Epoch})
			}
			return err
		}},
		{"begin", 4, func() error { return a.Claims.Begin(ctx, c, []string{"id"}) }},
		{"request transfer", 3, func() error { return a.Claims.RequestTransfer(ctx, c, Again, time.Hour) }},
		{"end transfer", 3, func() error { return a.Claims.EndTransfer(ctx, c) }},
		{"finish", 2, func() error { return a.Claims.Finish(ctx, c, ends[a.rng.IntN(len(ends))]) }},
		{"command to VM", 2, func() error { return a.VMs.SetCommand(ctx, k, command) }},
		{"command to plan", 1, func() error { return a.Plans.SetCommand(ctx, "p", command) }},
		{"requeue", 1, func() error { return a.Scheduling.Requeue(ctx, a.sched, []Key{k}, "gone") }},
		{"strand", 1, func() error { return a.Scheduling.MarkStranded(ctx, a.sched, []Key{k}, "gone") }},
		{"request rehearsal", 4, func() error { return a.Rehearsals.Request(ctx, k, Rehearsal{ID: fmt.Sprint(a.clock.Now().Unix())}) }},
		{"answer rehearsal", 2, func() error {
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

// pickClaim returns one of the last claims.
func (a *randomActor) pickClaim() Claim {
	if len(a.claims) == 0 {
		return Claim{Key: key(1), Worker: "w1"}
	}
	return a.claims[len(a.claims)-1-a.rng.IntN(min(len(a.claims), 4))]
}

func (a *randomActor) runRandomAction() {
	a.t.Helper()
	a.clock.advance(time.Second)
	var all []action
	for _, d := range a.actions() {
		all = append(all, slices.Repeat([]action{d}, d.weight)...)
	}
	d := all[a.rng.IntN(len(all))]
	err := d.run()
	if err != nil && !errors.Is(err, ErrFenced) && !fault.Is(err, fault.Conflict) {
		a.t.Fatalf("%s: %v", d.name, err)
	}
	if a.action = d.name; err == nil {
		a.done[d.name]++
	}
}

// checkRows checks that all rows are consistent, and that they follow from those after the last action.
func (a *randomActor) checkRows() {
	a.t.Helper()
	n := 0
	for _, v := range ok(a.VMs.List(a.t.Context(), Query{}))(a.t) {
		if why := contradiction(v); why != "" {
			a.t.Fatalf("after %s: %s: %+v", a.action, why, v)
		}
		if old := a.last[v.Key]; v.Epoch < old.Epoch || v.Rev < old.Rev || v.Epoch > old.Epoch+1 {
			a.t.Fatalf("after %s: row %+v, before %+v", a.action, v, old)
		}
		a.last[v.Key] = v
		n++
	}
	total := 0
	for _, count := range ok(a.Plans.Get(a.t.Context(), "p"))(a.t).Counts {
		total += count
	}
	if total != n {
		a.t.Fatalf("after %s: the plan counts %d VMs, want %d", a.action, total, n)
	}
}

// contradiction returns how the row of a VM contradicts itself, or "".
func contradiction(v VM) string {
	driven := v.State == Assigned || v.State == Running
	switch {
	case v.Granted && !driven:
		return "the VM holds slots and no worker drives it"
	case v.Granted && v.Requested != NoTransfer:
		return "the VM requests a transfer while it holds slots"
	case v.Granted != !v.Since.IsZero():
		return "the VM holds slots without a start time"
	case v.State == Queued && (v.Requested == First) != v.Began.IsZero():
		return "the queued VM requests the wrong kind of transfer"
	case v.State == Queued && v.Requested == NoTransfer:
		return "the queued VM requests no transfer"
	case v.State.IsFinal() && v.Requested != NoTransfer:
		return "the VM has ended and requests a transfer"
	case v.State.IsFinal() && v.Rehearse != nil:
		return "the VM has ended and has a rehearsal"
	case v.State.IsFinal() == v.Ended.IsZero():
		return "the state of the VM contradicts its end time"
	case driven && (v.Worker == "" || v.Epoch == 0):
		return "the VM is driven without a worker or an epoch"
	case v.State == Running && v.Began.IsZero():
		return "the VM runs without a start time"
	}
	return ""
}
