package fleetdb

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A rehearsal stands until the worker that drives the VM answers it, and is on record then.
func TestARehearsalIsAskedAndAnswered(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 4)
		claim := f.run(2, "w1")
		ask := Rehearsal{ID: "a1", Expect: "it's \"up\"\x00", Deadline: time.Minute}
		since := f.vm(2).Rev
		must(t, f.Rehearsals.Request(ctx, key(2), ask))
		must(t, f.Rehearsals.Request(ctx, key(2), ask)) // an answer that got lost
		if c := ok(f.Feed.Changes(ctx, since))(t); len(c.VMs) != 1 || c.VMs[0].Rehearse == nil || *c.VMs[0].Rehearse != ask {
			t.Fatalf("followers are told %+v", c.VMs)
		}
		if err := f.Rehearsals.Request(ctx, key(2), Rehearsal{ID: "a2"}); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("a second one: %v", err)
		}
		if all := ok(f.Rehearsals.List(ctx, key(2)))(t); len(all) != 1 || all[0].Rehearsal != ask || all[0].Worker != "w1" || !all[0].Ended.IsZero() || all[0].Failure != nil {
			t.Errorf("stands %+v", all)
		}
		old := claim
		old.Epoch--
		if err := f.Rehearsals.Answer(ctx, old, Rehearsed{Rehearsal: ask}); !fault.Is(err, fault.Conflict) {
			t.Errorf("answered with an old claim: %v", err)
		}
		must(t, f.Rehearsals.Answer(ctx, claim, Rehearsed{Rehearsal: Rehearsal{ID: "a0"}})) // another one's
		if f.vm(2).Rehearse == nil {
			t.Fatal("it was answered by what was said of another")
		}
		done := Rehearsed{Rehearsal: Rehearsal{ID: "a1"}, Report: json.RawMessage(`{"verdict":"booted"}`), Tail: "login:\x00\x1b"}
		must(t, f.Rehearsals.Answer(ctx, claim, done))
		must(t, f.Rehearsals.Answer(ctx, claim, done))
		must(t, f.Rehearsals.Request(ctx, key(2), ask)) // late
		all := ok(f.Rehearsals.List(ctx, key(2)))(t)
		if len(all) != 1 || all[0].Rehearsal != ask || all[0].Worker != "w1" || all[0].Ended.IsZero() || string(all[0].Report) != string(done.Report) || all[0].Tail != done.Tail {
			t.Errorf("answered %+v", all)
		}
		must(t, f.Rehearsals.Request(ctx, key(2), Rehearsal{ID: "a3"}))
		if all := ok(f.Rehearsals.List(ctx, key(2)))(t); len(all) != 2 || all[0].ID != "a3" || all[1].ID != "a1" {
			t.Errorf("one stands and one ended: %+v", all)
		}
		must(t, f.Rehearsals.TakeBack(ctx, key(2), "a1"))
		if f.vm(2).Rehearse == nil {
			t.Error("another one was taken back")
		}
		must(t, f.Rehearsals.TakeBack(ctx, key(2), "a3"))
		must(t, f.Rehearsals.TakeBack(ctx, key(2), "a3"))
		if f.vm(2).Rehearse != nil {
			t.Error("it stands still")
		}
	})
}

// What is asked goes with whoever drives the VM, and what was answered with the plan.
func TestARehearsalThatNobodyAnswers(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		clock := newClock()
		p.now = clock.Now
		f := newFleet(t, p.open(), 4)
		claim := f.run(2, "w1")
		must(t, f.Rehearsals.Request(ctx, key(2), Rehearsal{ID: "a1"}))
		clock.pass(2 * aMinute) // its worker is gone
		all := ok(f.Rehearsals.List(ctx, key(2)))(t)
		if len(all) != 1 || all[0].Failure == nil || all[0].Failure.Kind != "canceled" || all[0].Failure.Hint == "" || !all[0].Ended.IsZero() {
			t.Errorf("its worker is gone: %+v", all)
		}
		must(t, f.Rehearsals.TakeBack(ctx, key(2), "a1"))
		if err := f.Rehearsals.Request(ctx, key(2), Rehearsal{ID: "a2"}); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("asked of a worker that is gone: %v", err)
		}
		worker := f.workers["w1"]
		must(t, f.Leases.Renew(ctx, &worker, aMinute))
		must(t, f.Rehearsals.Request(ctx, key(2), Rehearsal{ID: "a2"}))
		must(t, f.Claims.Finish(ctx, claim, End{State: Done}))
		if all := ok(f.Rehearsals.List(ctx, key(2)))(t); len(all) != 0 || f.vm(2).Rehearse != nil {
			t.Errorf("it is done: %+v", all)
		}
		claim = f.runAgain(4, clock)
		must(t, f.Rehearsals.Request(ctx, key(4), Rehearsal{ID: "a3"}))
		must(t, f.Rehearsals.Answer(ctx, claim, Rehearsed{Rehearsal: Rehearsal{ID: "a3"}}))
		must(t, f.Claims.Finish(ctx, claim, End{State: Done}))
		must(t, f.Plans.SetState(ctx, "p", PlanEnded, nil))
		must(t, f.Plans.Drop(ctx, "p"))
		if left := ok(f.Records.List(ctx, rehearsals))(t); len(left) != 0 {
			t.Errorf("left of the plan: %+v", left)
		}
		if _, err := f.Rehearsals.List(ctx, key(4)); !fault.Is(err, fault.NotFound) {
			t.Errorf("of a VM that is not there: %v", err)
		}
	})
}

// runAgain is run after time has passed.
func (f *fleet) runAgain(n int, clock *clock) Claim {
	f.t.Helper()
	f.sched = ok(f.Leases.Acquire(f.t.Context(), "scheduler", "s1", aMinute))(f.t)
	return f.run(n, "w1")
}

// Each that cannot be rehearsed says why, and what to do.
func TestWhatCannotBeRehearsed(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 30)
		refused := func(what string, n int) {
			t.Helper()
			if err := f.Rehearsals.Request(ctx, key(n), Rehearsal{ID: "r"}); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || f.vm(n).Rehearse != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		f.stage(1, Running)
		refused("a cold one", 1)
		for i, s := range []State{Queued, Stranded, Done, Failed, Canceled} {
			f.stage(2+2*i, s)
			refused(string(s), 2+2*i)
		}
		for i, o := range []Command{CutOver, Cancel} {
			f.stage(12+2*i, Running)
			must(t, f.VMs.SetCommand(ctx, key(12+2*i), o))
			refused("ordered "+string(o), 12+2*i)
		}
		f.stage(16, Running)
		must(t, f.VMs.SetCommand(ctx, key(16), Pause))
		must(t, f.Rehearsals.Request(ctx, key(16), Rehearsal{ID: "r"}))
		f.stage(18, Assigned)
		must(t, f.Rehearsals.Request(ctx, key(18), Rehearsal{ID: "r"}))
		f.stage(20, Running)
		must(t, f.Plans.SetCommand(ctx, "p", CutOver))
		refused("of a plan that is cut over", 20)
		if err := f.Rehearsals.Request(ctx, Key{"p", "vm-99"}, Rehearsal{ID: "r"}); !fault.Is(err, fault.NotFound) {
			t.Errorf("no such VM: %v", err)
		}
	})
}
