package fleetdb

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// bringTo brings VM n to a state. The VM is warm if n is even.
func (f *fleet) bringTo(n int, s State) {
	f.t.Helper()
	ctx := f.t.Context()
	switch s {
	case Queued:
	case Assigned:
		f.grantVM(n, "w1")
	case Running:
		f.runVM(n, "w1")
	case Stranded:
		f.runVM(n, "w1")
		must(f.t, f.db.write(ctx, "strand", 1, func(x *tx) error {
			_, err := x.exec(`UPDATE vms SET state = 'stranded', holds = FALSE, rev = $3 WHERE plan = $1 AND vm = $2`, key(n).Plan, key(n).VM, x.rev)
			return err
		}))
	case Canceled:
		must(f.t, f.Claims.Finish(ctx, f.runVM(n, "w1"), End{State: Canceled}))
	default:
		must(f.t, f.Claims.Finish(ctx, f.runVM(n, "w1"), End{State: s, Failure: failureOf(s)}))
	}
}

func failureOf(s State) *Failure {
	if s == Failed {
		return &Failure{Kind: "not-found", Text: "no such disk"}
	}
	return nil
}

// Each command to a VM in each state leads to the state in the table. "" stands for fault.Conflict with a hint.
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
	onBoth(t, func(t *testing.T, p *testDatabase) {
		f := newFleet(t, p.open(), 100)
		n := 0
		for command, outcomes := range table {
			for from, want := range outcomes {
				n += 2 // warm
				f.bringTo(n, from)
				err := f.VMs.SetCommand(t.Context(), key(n), command)
				v := f.getVM(n)
				switch {
				case want == "" && (!fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || v.State != from || v.Command != GoOn):
					t.Errorf("%q of a VM that is %s: got %v (hint %q), want Conflict with a hint", command, from, err, fault.HintOf(err))
				case want != "" && (err != nil || v.State != want):
					t.Errorf("%q of a VM that is %s: got %s, want %s; %v", command, from, v.State, want, err)
				case want != "" && command != Retry && from != Canceled && v.Command != command:
					t.Errorf("%q of a VM that is %s: its command is %q", command, from, v.Command)
				}
			}
		}
	})
}

func TestContradictoryCommandsAreRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 4)
		conflict := func(what string, err error) {
			t.Helper()
			if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
				t.Errorf("%s: got %v, want Conflict with a hint", what, err)
			}
		}
		conflict("cutover of a cold VM", f.VMs.SetCommand(ctx, key(1), CutOver))
		claim := f.runVM(2, "w1")
		must(t, f.VMs.SetCommand(ctx, key(2), Cancel))
		conflict("resume of a VM that is being canceled", f.VMs.SetCommand(ctx, key(2), GoOn))
		conflict("cutover of a VM that is being canceled", f.VMs.SetCommand(ctx, key(2), CutOver))
		conflict("retry of a VM that is being canceled", f.VMs.SetCommand(ctx, key(2), Retry))
		must(t, f.VMs.SetCommand(ctx, key(2), Rollback))
		must(t, f.Claims.Finish(ctx, claim, End{State: Canceled}))
		must(t, f.VMs.SetCommand(ctx, key(2), Retry))
		if v := f.getVM(2); v.State != Queued || v.Requested != First || !v.Began.IsZero() || len(v.Storage) != 0 || v.Command != GoOn {
			t.Errorf("retried after it was undone: %+v", v)
		}
		must(t, f.Plans.SetCommand(ctx, "p", Cancel))
		conflict("retry of one VM of a canceled plan", f.VMs.SetCommand(ctx, key(1), Retry))
		conflict("pause of a canceled plan", f.Plans.SetCommand(ctx, "p", Pause))
		if err := f.VMs.SetCommand(ctx, Key{"p", "vm-99"}, Pause); !fault.Is(err, fault.NotFound) {
			t.Errorf("VM that does not exist: got %v, want NotFound", err)
		}
		if err := f.Plans.SetCommand(ctx, "q", Pause); !fault.Is(err, fault.NotFound) {
			t.Errorf("plan that does not exist: got %v, want NotFound", err)
		}
	})
}

func TestACanceledPlanIsRetried(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 5)
		must(t, f.Plans.SetState(ctx, "p", PlanRunning, nil))
		f.bringTo(1, Done)
		f.bringTo(2, Failed)
		running := f.runVM(3, "w1")
		must(t, f.Plans.SetCommand(ctx, "p", Cancel))
		must(t, f.VMs.Add(ctx, someVMs("p", 6))) // found late
		want := map[int]State{1: Done, 2: Queued, 3: Running, 4: Canceled, 5: Canceled, 6: Canceled}
		for n, state := range want {
			if v := f.getVM(n); v.State != state {
				t.Errorf("canceled: VM %d is %s, want %s", n, v.State, state)
			}
		}
		if err := f.Plans.SetCommand(ctx, "p", Retry); !fault.Is(err, fault.Conflict) {
			t.Errorf("retry of a plan that is being canceled: got %v, want Conflict", err)
		}
		must(t, f.Claims.Finish(ctx, running, End{State: Canceled}))
		must(t, f.Claims.Finish(ctx, f.runVM(2, "w1"), End{State: Canceled}))
		must(t, f.Plans.SetState(ctx, "p", PlanEnded, nil))
		if err := f.Plans.SetCommand(ctx, "p", Cancel); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("canceled again: got %v, want Conflict with a hint", err)
		}
		must(t, f.Plans.SetCommand(ctx, "p", Retry))
		plan := ok(f.Plans.Get(ctx, "p"))(t)
		if plan.State != PlanRunning || plan.Command != GoOn || !plan.Ended.IsZero() || fmt.Sprint(plan.Counts) != "map[done:1 queued:5]" {
			t.Errorf("retried: %+v", plan)
		}
	})
}

func TestEndedPlanRefusesCommands(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 3)
		must(t, f.Plans.SetState(ctx, "p", PlanRunning, nil))
		f.bringTo(1, Done)
		f.bringTo(2, Done)
		f.bringTo(3, Done)
		must(t, f.Plans.SetState(ctx, "p", PlanEnded, nil))
		for _, o := range []Command{GoOn, Pause, CutOver, Cancel, Rollback, Withdraw, Retry} {
			if err := f.Plans.SetCommand(ctx, "p", o); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
				t.Errorf("%q: got %v, want Conflict with a hint", o, err)
			}
			if err := f.Plans.SetCommand(ctx, "p", o); strings.Contains(fault.HintOf(err), "retry") {
				t.Errorf("%q: all VMs are published, but the hint is %q", o, fault.HintOf(err))
			}
		}
		must(t, f.Plans.Drop(ctx, "p"))
		ok(f.Plans.Add(ctx, Plan{Name: "p", Text: "another"}))(t)
		must(t, f.VMs.Add(ctx, someVMs("p", 1))) // cold
		must(t, f.Plans.SetState(ctx, "p", PlanRunning, nil))
		if err := f.Plans.SetCommand(ctx, "p", CutOver); !fault.Is(err, fault.Conflict) {
			t.Errorf("cutover of a plan without a warm VM: got %v, want Conflict", err)
		}
		f.bringTo(1, Failed)
		must(t, f.Plans.SetState(ctx, "p", PlanEnded, nil))
		must(t, f.VMs.SetCommand(ctx, key(1), Retry))
		if plan := ok(f.Plans.Get(ctx, "p"))(t); plan.State != PlanRunning {
			t.Errorf("after the retry of a VM the plan is %s, want %s", plan.State, PlanRunning)
		}
	})
}

func TestTheEffectiveCommand(t *testing.T) {
	for _, c := range []struct{ own, plan, want Command }{
		{GoOn, GoOn, GoOn}, {GoOn, Pause, Pause}, {Pause, GoOn, Pause}, {CutOver, Pause, CutOver},
		{Pause, Cancel, Cancel}, {Cancel, Pause, Cancel}, {Rollback, Cancel, Rollback}, {GoOn, Rollback, Rollback},
	} {
		if got := c.own.Within(c.plan); got != c.want {
			t.Errorf("%q within %q is %q, want %q", c.own, c.plan, got, c.want)
		}
	}
}

func TestVMsOfAPausedPlanAreNotGranted(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 4)
		must(t, f.Plans.SetCommand(ctx, "p", Pause))
		must(t, f.VMs.SetCommand(ctx, key(2), CutOver))
		vms := ok(f.Scheduling.Grant(ctx, f.sched, []Granted{{Key: key(1), Worker: "w1", Expected: time.Hour}, {Key: key(2), Worker: "w1"}}))(t)
		if len(vms) != 1 || vms[0].Key != key(2) {
			t.Errorf("granted %+v, want only vm-2", vms)
		}
		must(t, f.Plans.SetCommand(ctx, "p", GoOn))
		f.grantVM(1, "w1")
	})
}
