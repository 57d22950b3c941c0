package fleetdb

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// stage brings VM n, which is warm if n is even, to a state.
func (f *fleet) stage(n int, s State) {
	f.t.Helper()
	ctx := f.t.Context()
	switch s {
	case Queued:
	case Assigned:
		f.grant(n, "w1")
	case Running:
		f.run(n, "w1")
	case Stranded:
		f.run(n, "w1")
		must(f.t, f.db.write(ctx, "strand", 1, func(x *tx) error {
			_, err := x.exec(`UPDATE vms SET state = 'stranded', holds = FALSE, rev = $3 WHERE plan = $1 AND vm = $2`, key(n).Plan, key(n).VM, x.rev)
			return err
		}))
	case Canceled:
		must(f.t, f.Claims.Finish(ctx, f.run(n, "w1"), End{State: Canceled}))
	default:
		must(f.t, f.Claims.Finish(ctx, f.run(n, "w1"), End{State: s, Failure: failureOf(s)}))
	}
}

func failureOf(s State) *Failure {
	if s == Failed {
		return &Failure{Kind: "not-found", Text: "no such disk"}
	}
	return nil
}

// What each order makes of a VM in each state: "" is fault.Conflict with a remedy.
func TestCommandsToAVM(t *testing.T) {
	table := map[Command]map[State]State{
		GoOn:     {Queued: Queued, Assigned: Assigned, Running: Running, Stranded: Stranded, Done: "", Failed: "", Canceled: ""},
		Pause:    {Queued: Queued, Assigned: Assigned, Running: Running, Stranded: Stranded, Done: "", Failed: "", Canceled: ""},
		CutOver:  {Queued: Queued, Assigned: Assigned, Running: Running, Stranded: Stranded, Done: "", Failed: "", Canceled: ""},
		Cancel:   {Queued: Canceled, Assigned: Assigned, Running: Running, Stranded: Stranded, Done: "", Failed: Queued, Canceled: Canceled},
		Rollback: {Queued: Canceled, Assigned: Assigned, Running: Running, Stranded: Stranded, Done: "", Failed: Queued, Canceled: Canceled},
		Withdraw: {Queued: Canceled, Assigned: Assigned, Running: Running, Stranded: Stranded, Done: Queued, Failed: Queued, Canceled: Canceled},
		Retry:    {Queued: Queued, Assigned: "", Running: "", Stranded: "", Done: "", Failed: Queued, Canceled: Queued},
	}
	onBoth(t, func(t *testing.T, p *place) {
		f := newFleet(t, p.open(), 100)
		n := 0
		for order, outcomes := range table {
			for from, want := range outcomes {
				n += 2 // warm
				f.stage(n, from)
				err := f.VMs.SetCommand(t.Context(), key(n), order)
				v := f.vm(n)
				switch {
				case want == "" && (!fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || v.State != from || v.Command != GoOn):
					t.Errorf("%q of a VM that is %s: %v (%s)", order, from, err, fault.HintOf(err))
				case want != "" && (err != nil || v.State != want):
					t.Errorf("%q of a VM that is %s: %v, it is %s", order, from, err, v.State)
				case want != "" && order != Retry && from != Canceled && v.Command != order:
					t.Errorf("%q of a VM that is %s: its order is %q", order, from, v.Command)
				}
			}
		}
	})
}

func TestCommandsThatContradictEachOther(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 4)
		conflict := func(what string, err error) {
			t.Helper()
			if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
				t.Errorf("%s: %v", what, err)
			}
		}
		conflict("cutover of a cold VM", f.VMs.SetCommand(ctx, key(1), CutOver))
		claim := f.run(2, "w1")
		must(t, f.VMs.SetCommand(ctx, key(2), Cancel))
		conflict("resume of what is being canceled", f.VMs.SetCommand(ctx, key(2), GoOn))
		conflict("cutover of what is being canceled", f.VMs.SetCommand(ctx, key(2), CutOver))
		conflict("retry of what is being canceled", f.VMs.SetCommand(ctx, key(2), Retry))
		must(t, f.VMs.SetCommand(ctx, key(2), Rollback))
		must(t, f.Claims.Finish(ctx, claim, End{State: Canceled}))
		must(t, f.VMs.SetCommand(ctx, key(2), Retry))
		if v := f.vm(2); v.State != Queued || v.Requested != First || !v.Began.IsZero() || len(v.Storage) != 0 || v.Command != GoOn {
			t.Errorf("retried after it was undone: %+v", v)
		}
		must(t, f.Plans.SetCommand(ctx, "p", Cancel))
		conflict("retry of one VM of a canceled plan", f.VMs.SetCommand(ctx, key(1), Retry))
		conflict("pause of a canceled plan", f.Plans.SetCommand(ctx, "p", Pause))
		if err := f.VMs.SetCommand(ctx, Key{"p", "vm-99"}, Pause); !fault.Is(err, fault.NotFound) {
			t.Errorf("no such VM: %v", err)
		}
		if err := f.Plans.SetCommand(ctx, "q", Pause); !fault.Is(err, fault.NotFound) {
			t.Errorf("no such plan: %v", err)
		}
	})
}

func TestAPlanIsCanceledAndTakenUpAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 5)
		must(t, f.Plans.SetState(ctx, "p", PlanRunning, nil))
		f.stage(1, Done)
		f.stage(2, Failed)
		running := f.run(3, "w1")
		must(t, f.Plans.SetCommand(ctx, "p", Cancel))
		must(t, f.VMs.Add(ctx, someVMs("p", 6))) // found late
		want := map[int]State{1: Done, 2: Queued, 3: Running, 4: Canceled, 5: Canceled, 6: Canceled}
		for n, state := range want {
			if v := f.vm(n); v.State != state {
				t.Errorf("canceled: VM %d is %s, not %s", n, v.State, state)
			}
		}
		if err := f.Plans.SetCommand(ctx, "p", Retry); !fault.Is(err, fault.Conflict) {
			t.Errorf("retry while it is being canceled: %v", err)
		}
		must(t, f.Claims.Finish(ctx, running, End{State: Canceled}))
		must(t, f.Claims.Finish(ctx, f.run(2, "w1"), End{State: Canceled}))
		must(t, f.Plans.SetState(ctx, "p", PlanEnded, nil))
		if err := f.Plans.SetCommand(ctx, "p", Cancel); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("canceled again: %v", err)
		}
		must(t, f.Plans.SetCommand(ctx, "p", Retry))
		plan := ok(f.Plans.Get(ctx, "p"))(t)
		if plan.State != PlanRunning || plan.Command != GoOn || !plan.Ended.IsZero() || fmt.Sprint(plan.Counts) != "map[done:1 queued:5]" {
			t.Errorf("retried: %+v", plan)
		}
	})
}

func TestAPlanThatHasEndedAcceptsNoCommands(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 3)
		must(t, f.Plans.SetState(ctx, "p", PlanRunning, nil))
		f.stage(1, Done)
		f.stage(2, Done)
		f.stage(3, Done)
		must(t, f.Plans.SetState(ctx, "p", PlanEnded, nil))
		for _, o := range []Command{GoOn, Pause, CutOver, Cancel, Rollback, Withdraw, Retry} {
			if err := f.Plans.SetCommand(ctx, "p", o); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
				t.Errorf("%q: %v", o, err)
			}
			if err := f.Plans.SetCommand(ctx, "p", o); strings.Contains(fault.HintOf(err), "retry") {
				t.Errorf("%q: all is published, and the remedy is to %s", o, fault.HintOf(err))
			}
		}
		must(t, f.Plans.Drop(ctx, "p"))
		ok(f.Plans.Add(ctx, Plan{Name: "p", Text: "another"}))(t)
		must(t, f.VMs.Add(ctx, someVMs("p", 1))) // cold
		must(t, f.Plans.SetState(ctx, "p", PlanRunning, nil))
		if err := f.Plans.SetCommand(ctx, "p", CutOver); !fault.Is(err, fault.Conflict) {
			t.Errorf("cutover of a plan without a warm VM: %v", err)
		}
		f.stage(1, Failed)
		must(t, f.Plans.SetState(ctx, "p", PlanEnded, nil))
		must(t, f.VMs.SetCommand(ctx, key(1), Retry))
		if plan := ok(f.Plans.Get(ctx, "p"))(t); plan.State != PlanRunning {
			t.Errorf("one VM of it goes on: it is %s", plan.State)
		}
	})
}

func TestTheEffectiveCommand(t *testing.T) {
	for _, c := range []struct{ own, plan, stands Command }{
		{GoOn, GoOn, GoOn}, {GoOn, Pause, Pause}, {Pause, GoOn, Pause}, {CutOver, Pause, CutOver},
		{Pause, Cancel, Cancel}, {Cancel, Pause, Cancel}, {Rollback, Cancel, Rollback}, {GoOn, Rollback, Rollback},
	} {
		if got := c.own.Within(c.plan); got != c.stands {
			t.Errorf("%q under %q is %q", c.own, c.plan, got)
		}
	}
}

func TestAPausedPlanIsNotGrantedTo(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 4)
		must(t, f.Plans.SetCommand(ctx, "p", Pause))
		must(t, f.VMs.SetCommand(ctx, key(2), CutOver))
		vms := ok(f.Scheduling.Grant(ctx, f.sched, []Granted{{Key: key(1), Worker: "w1", Expected: time.Hour}, {Key: key(2), Worker: "w1"}}))(t)
		if len(vms) != 1 || vms[0].Key != key(2) {
			t.Errorf("granted %+v", vms)
		}
		must(t, f.Plans.SetCommand(ctx, "p", GoOn))
		f.grant(1, "w1")
	})
}
