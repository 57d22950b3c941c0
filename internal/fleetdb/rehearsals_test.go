package fleetdb

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A requested rehearsal is pending until the worker of the VM answers it. Its result is recorded then.
func TestARehearsalIsRequestedAndAnswered(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 4)
		claim := f.runVM(2, "w1")
		ask := Rehearsal{ID: "a1", Expect: "it's \"up\"\x00", Deadline: time.Minute}
		since := f.getVM(2).Rev
		must(t, f.Rehearsals.Request(ctx, key(2), ask))
		must(t, f.Rehearsals.Request(ctx, key(2), ask)) // the response was lost
		if c := ok(f.Feed.Changes(ctx, since))(t); len(c.VMs) != 1 || c.VMs[0].Rehearse == nil || *c.VMs[0].Rehearse != ask {
			t.Fatalf("changed VMs are %+v", c.VMs)
		}
		if err := f.Rehearsals.Request(ctx, key(2), Rehearsal{ID: "a2"}); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("second request: got %v, want Conflict with a hint", err)
		}
		if all := ok(f.Rehearsals.List(ctx, key(2)))(t); len(all) != 1 || all[0].Rehearsal != ask || all[0].Worker != "w1" || !all[0].Ended.IsZero() || all[0].Failure != nil {
			t.Errorf("pending rehearsals are %+v", all)
		}
		old := claim
		old.Epoch--
		if err := f.Rehearsals.Answer(ctx, old, Rehearsed{Rehearsal: ask}); !fault.Is(err, fault.Conflict) {
			t.Errorf("Answer with an old claim: got %v, want Conflict", err)
		}
		must(t, f.Rehearsals.Answer(ctx, claim, Rehearsed{Rehearsal: Rehearsal{ID: "a0"}})) // another rehearsal
		if f.getVM(2).Rehearse == nil {
			t.Fatal("the answer to another rehearsal ended this one")
		}
		done := Rehearsed{Rehearsal: Rehearsal{ID: "a1"}, Report: json.RawMessage(`{"verdict":"booted"}`), Tail: "login:\x00\x1b"}
		must(t, f.Rehearsals.Answer(ctx, claim, done))
		must(t, f.Rehearsals.Answer(ctx, claim, done))
		must(t, f.Rehearsals.Request(ctx, key(2), ask)) // a late repetition
		all := ok(f.Rehearsals.List(ctx, key(2)))(t)
		if len(all) != 1 || all[0].Rehearsal != ask || all[0].Worker != "w1" || all[0].Ended.IsZero() || string(all[0].Report) != string(done.Report) || all[0].Tail != done.Tail {
			t.Errorf("results are %+v", all)
		}
		must(t, f.Rehearsals.Request(ctx, key(2), Rehearsal{ID: "a3"}))
		if all := ok(f.Rehearsals.List(ctx, key(2)))(t); len(all) != 2 || all[0].ID != "a3" || all[1].ID != "a1" {
			t.Errorf("rehearsals are %+v, want a pending a3 and an ended a1", all)
		}
		must(t, f.Rehearsals.TakeBack(ctx, key(2), "a1"))
		if f.getVM(2).Rehearse == nil {
			t.Error("TakeBack of an ended rehearsal took back another one")
		}
		must(t, f.Rehearsals.TakeBack(ctx, key(2), "a3"))
		must(t, f.Rehearsals.TakeBack(ctx, key(2), "a3"))
		if f.getVM(2).Rehearse != nil {
			t.Error("the rehearsal is still pending after TakeBack")
		}
	})
}

// A pending rehearsal ends when its VM ends. Results are deleted with the plan.
func TestPendingRehearsalEndsWithItsVM(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		clock := newClock()
		p.now = clock.Now
		f := newFleet(t, p.open(), 4)
		claim := f.runVM(2, "w1")
		must(t, f.Rehearsals.Request(ctx, key(2), Rehearsal{ID: "a1"}))
		clock.advance(2 * aMinute) // the worker's lease expires
		all := ok(f.Rehearsals.List(ctx, key(2)))(t)
		if len(all) != 1 || all[0].Failure == nil || all[0].Failure.Kind != "canceled" || all[0].Failure.Hint == "" || !all[0].Ended.IsZero() {
			t.Errorf("rehearsal of an ended worker: %+v", all)
		}
		must(t, f.Rehearsals.TakeBack(ctx, key(2), "a1"))
		if err := f.Rehearsals.Request(ctx, key(2), Rehearsal{ID: "a2"}); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("request to an ended worker: got %v, want Conflict with a hint", err)
		}
		worker := f.workers["w1"]
		must(t, f.Leases.Renew(ctx, &worker, aMinute))
		must(t, f.Rehearsals.Request(ctx, key(2), Rehearsal{ID: "a2"}))
		must(t, f.Claims.Finish(ctx, claim, End{State: Done}))
		if all := ok(f.Rehearsals.List(ctx, key(2)))(t); len(all) != 0 || f.getVM(2).Rehearse != nil {
			t.Errorf("rehearsals of a VM that is done: %+v, want none", all)
		}
		claim = f.runAgain(4, clock)
		must(t, f.Rehearsals.Request(ctx, key(4), Rehearsal{ID: "a3"}))
		must(t, f.Rehearsals.Answer(ctx, claim, Rehearsed{Rehearsal: Rehearsal{ID: "a3"}}))
		must(t, f.Claims.Finish(ctx, claim, End{State: Done}))
		must(t, f.Plans.SetState(ctx, "p", PlanEnded, nil))
		must(t, f.Plans.Drop(ctx, "p"))
		if left := ok(f.Records.List(ctx, rehearsals))(t); len(left) != 0 {
			t.Errorf("records of the dropped plan are left: %+v", left)
		}
		if _, err := f.Rehearsals.List(ctx, key(4)); !fault.Is(err, fault.NotFound) {
			t.Errorf("List of a VM that does not exist: got %v, want NotFound", err)
		}
	})
}

// runAgain acquires the scheduler's lease again and runs VM n on w1.
func (f *fleet) runAgain(n int, clock *fakeClock) Claim {
	f.t.Helper()
	f.sched = ok(f.Leases.Acquire(f.t.Context(), "scheduler", "s1", aMinute))(f.t)
	return f.runVM(n, "w1")
}

// A request for a VM that cannot be rehearsed is refused with a hint.
func TestRehearsalRequestIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 30)
		refused := func(what string, n int) {
			t.Helper()
			if err := f.Rehearsals.Request(ctx, key(n), Rehearsal{ID: "r"}); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || f.getVM(n).Rehearse != nil {
				t.Errorf("%s: got %v, want Conflict with a hint", what, err)
			}
		}
		f.bringTo(1, Running)
		refused("cold VM", 1)
		for i, s := range []State{Queued, Stranded, Done, Failed, Canceled} {
			f.bringTo(2+2*i, s)
			refused(string(s), 2+2*i)
		}
		for i, o := range []Command{CutOver, Cancel} {
			f.bringTo(12+2*i, Running)
			must(t, f.VMs.SetCommand(ctx, key(12+2*i), o))
			refused("VM with command "+string(o), 12+2*i)
		}
		f.bringTo(16, Running)
		must(t, f.VMs.SetCommand(ctx, key(16), Pause))
		must(t, f.Rehearsals.Request(ctx, key(16), Rehearsal{ID: "r"}))
		f.bringTo(18, Assigned)
		must(t, f.Rehearsals.Request(ctx, key(18), Rehearsal{ID: "r"}))
		f.bringTo(20, Running)
		must(t, f.Plans.SetCommand(ctx, "p", CutOver))
		refused("VM of a plan that is cut over", 20)
		if err := f.Rehearsals.Request(ctx, Key{"p", "vm-99"}, Rehearsal{ID: "r"}); !fault.Is(err, fault.NotFound) {
			t.Errorf("VM that does not exist: got %v, want NotFound", err)
		}
	})
}
