package fleetdb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/fault"
)

func TestAPlanIsSubmittedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx, r := t.Context(), p.open()
		text := "version: 1\n# größer\n" + strings.Repeat("x", 1<<20)
		one := ok(r.Plans.Add(ctx, Plan{Name: "p", Text: text, Folder: "/etc/decamp", By: "ann"}))(t)
		two := ok(r.Plans.Add(ctx, Plan{Name: "p", Text: text, Folder: "/root", By: "bob"}))(t)
		if one.Rev != two.Rev || two.By != "ann" || two.Folder != "/etc/decamp" || two.Text != text || two.State != PlanListing || two.Created.IsZero() {
			t.Errorf("the same plan again: %+v", two)
		}
		if _, err := r.Plans.Add(ctx, Plan{Name: "p", Text: "other"}); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("another text: got %v, want Conflict with a hint", err)
		}
		failure := &Failure{Kind: "denied", Text: "login to vc1", Hint: "look at the password"}
		must(t, r.Plans.SetState(ctx, "p", PlanEnded, failure))
		plan := ok(r.Plans.Get(ctx, "p"))(t)
		if plan.State != PlanFailed || *plan.Failure != *failure || !plan.Listed.IsZero() || plan.Ended.IsZero() {
			t.Errorf("ended plan: %+v", plan)
		}
		must(t, r.Plans.SetCommand(ctx, "p", Retry))
		if plan := ok(r.Plans.Get(ctx, "p"))(t); plan.State != PlanListing || plan.Failure != nil {
			t.Errorf("retried plan: %+v", plan)
		}
	})
}

func TestOnlyAnEndedPlanIsDropped(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 2)
		f.runVM(1, "w1")
		must(t, f.Progress.Report(ctx, f.workers["w1"], []Progress{{Key: key(1), Done: 7}}, nil))
		if err := f.Plans.Drop(ctx, "p"); !fault.Is(err, fault.Conflict) {
			t.Errorf("Drop of a running plan: got %v, want Conflict", err)
		}
		must(t, f.Plans.SetState(ctx, "p", PlanEnded, nil))
		must(t, f.Plans.Drop(ctx, "p"))
		if _, err := f.Plans.Get(ctx, "p"); !fault.Is(err, fault.NotFound) {
			t.Errorf("dropped plan: got %v, want NotFound", err)
		}
		if _, err := f.VMs.Get(ctx, key(1)); !fault.Is(err, fault.NotFound) {
			t.Errorf("VM of the dropped plan: got %v, want NotFound", err)
		}
		if left := ok(f.Progress.List(ctx, ""))(t); len(left) != 0 {
			t.Errorf("progress of the dropped plan is left: %+v", left)
		}
	})
}

func TestVMsAreAddedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 3)
		f.runVM(2, "w1")
		odd := VM{Key: Key{"p", "vm-ö \"x\""}, Name: "a\nb", Priority: -3, Line: 9, Spec: json.RawMessage(`{"a":  [1, "\""]}`)}
		must(t, f.VMs.Add(ctx, append(someVMs("p", 4), odd)))
		if v := f.getVM(2); v.State != Running {
			t.Errorf("the VM that was added before is %s, want running", v.State)
		}
		v := ok(f.VMs.Get(ctx, odd.Key))(t)
		if v.Name != odd.Name || v.Seq != 5 || v.Priority != -3 || v.Line != 9 || v.Warm || !bytes.Equal(compactJSON(t, v.Spec), compactJSON(t, odd.Spec)) {
			t.Errorf("added: %+v, spec %s", v, v.Spec)
		}
		want := someVMs("p", 4)[3]
		v = f.getVM(4)
		if v.Name != want.Name || v.Bytes != want.Bytes || !v.Warm || v.Disks != 2 || fmt.Sprint(v.To, v.Runs) != fmt.Sprint(want.To, want.Runs) || v.Host != "esx1" {
			t.Errorf("added: %+v", v)
		}
		if err := f.VMs.Add(ctx, someVMs("q", 1)); !fault.Is(err, fault.NotFound) {
			t.Errorf("VMs of a plan that does not exist: got %v, want NotFound", err)
		}
	})
}

func compactJSON(t *testing.T, raw json.RawMessage) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, json.Compact(&b, raw))
	return b.Bytes()
}

func TestMissingVMIsRecordedAsFailed(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx, r := t.Context(), p.open()
		ok(r.Plans.Add(ctx, Plan{Name: "p", Text: "t"}))(t)
		why := &Failure{Kind: "not-found", Text: "no VM is called web9", Hint: "decamp ls"}
		must(t, r.VMs.Add(ctx, []VM{{Key: Key{"p", "line-7"}, Name: "web9", State: Failed, Failure: why}}))
		v := ok(r.VMs.Get(ctx, Key{"p", "line-7"}))(t)
		if v.State != Failed || v.Requested != NoTransfer || v.Ended.IsZero() || v.Failure == nil || *v.Failure != *why {
			t.Errorf("the VM is %+v with failure %+v", v, v.Failure)
		}
		if n := ok(r.Plans.Get(ctx, "p"))(t).Counts; n[Failed] != 1 {
			t.Errorf("counts are %v, want 1 failed VM", n)
		}
	})
}

func TestPlansAreCounted(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 4)
		ok(f.Plans.Add(ctx, Plan{Name: "empty"}))(t)
		for _, step := range []struct {
			run  func()
			want string
		}{
			{func() {}, "map[queued:4]"},
			{func() { f.runVM(1, "w1") }, "map[queued:3 running:1]"},
			{func() { f.bringTo(2, Failed) }, "map[failed:1 queued:2 running:1]"},
		} {
			step.run()
			for range 2 { // counted, then cached
				plans := ok(f.Plans.List(ctx))(t)
				if len(plans) != 2 || fmt.Sprint(plans[0].Counts) != step.want || len(plans[1].Counts) != 0 || plans[0].Text != "" {
					t.Fatalf("counted %+v, want %s", plans, step.want)
				}
				plans[0].Counts[Done] = 99 // does not change the cache
			}
		}
	})
}

// A dead worker does not report that its transfers have stopped. Its last rates count until silentAfter.
func TestStaleProgressIsSilent(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
		p.now = func() time.Time { return now }
		f := newFleet(t, p.open(), 1)
		f.runVM(1, "w1")
		must(t, f.Progress.Report(ctx, f.workers["w1"], []Progress{{Key: key(1), Total: 100, Done: 42, Rate: 7}}, nil))
		for _, after := range []time.Duration{0, silentAfter - time.Second, time.Second} {
			now = now.Add(after)
			silent := after == time.Second
			all := ok(f.Progress.List(ctx, "p"))(t)
			if got := all[0]; got.Silent != silent || (got.Rate == 0) != silent || got.Done != 42 {
				t.Errorf("at %v: %+v", now, got)
			}
		}
	})
}

func TestOnlyTheWorkerOfAVMReportsItsProgress(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		p.now = func() time.Time { return time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC) }
		f := newFleet(t, p.open(), 3)
		f.runVM(1, "w1")
		claim := f.runVM(2, "w2")
		reported := Progress{Key: key(1), Total: 100, Done: 42, Rate: 7, Round: 2, Outage: time.Second, Dirty: 3, Busy: bottleneck.Busy{Source: 1, Target: 0.25}}
		must(t, f.Progress.Report(ctx, f.workers["w1"], []Progress{reported, {Key: key(2), Done: 1}, {Key: key(9)}}, nil))
		all := ok(f.Progress.List(ctx, "p"))(t)
		if len(all) != 1 || all[0].At.IsZero() {
			t.Fatalf("progress is %+v", all)
		}
		all[0].At = time.Time{}
		if all[0] != reported {
			t.Errorf("progress is %+v, want %+v", all[0], reported)
		}
		must(t, f.Progress.Report(ctx, f.workers["w2"], []Progress{{Key: key(2), Done: 5}}, nil))
		if all := ok(f.Progress.List(ctx, ""))(t); len(all) != 2 || all[1].Done != 5 {
			t.Errorf("progress is %+v", all)
		}
		must(t, f.Claims.Finish(ctx, claim, End{State: Done}))
		must(t, f.Progress.Report(ctx, f.workers["w2"], []Progress{{Key: key(2), Done: 6}}, nil)) // late
		if all := ok(f.Progress.List(ctx, ""))(t); len(all) != 1 || all[0].VM != "vm-1" {
			t.Errorf("progress is %+v, want none of the VM that is done", all)
		}
		ok(f.Workers.Join(ctx, Worker{Name: "w1"}, aMinute))(t)
		if err := f.Progress.Report(ctx, f.workers["w1"], []Progress{reported}, nil); !fault.Is(err, fault.Conflict) {
			t.Errorf("report of the replaced process: got %v, want Conflict", err)
		}
	})
}

func TestSchedulerStateIsRequestedAndWritten(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		clock := newClock()
		p.now = clock.Now
		ctx := t.Context()
		f := newFleet(t, p.open(), 1)
		if since := ok(f.SchedulerState.Requested(ctx))(t); since < 24*time.Hour {
			t.Errorf("requested %v ago, want never", since)
		}
		must(t, f.SchedulerState.Request(ctx))
		must(t, f.SchedulerState.Request(ctx))
		clock.advance(5 * time.Second)
		if since := ok(f.SchedulerState.Requested(ctx))(t); since != 5*time.Second {
			t.Errorf("requested %v ago, want 5 s", since)
		}
		must(t, f.SchedulerState.Write(ctx, f.sched, json.RawMessage(`{"waiting":[]}`)))
		doc, at, err := f.SchedulerState.Read(ctx)
		if must(t, err); string(doc) != `{"waiting":[]}` || !at.Equal(clock.Now()) {
			t.Errorf("the state is %s of %v", doc, at)
		}
		must(t, f.Leases.Free(ctx, f.sched))
		ok(f.Leases.Acquire(ctx, "scheduler", "s2", aMinute))(t)
		if err := f.SchedulerState.Write(ctx, f.sched, json.RawMessage(`{}`)); !fault.Is(err, fault.Conflict) {
			t.Errorf("Write by a former scheduler: got %v, want Conflict", err)
		}
	})
}

func TestTheAuditTrailIsReadBackwards(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx, r := t.Context(), p.open()
		for i := range 5 {
			must(t, r.Audit.Add(ctx, Entry{User: "ann", Role: "operate", From: "local", Action: "pause", On: fmt.Sprint("p", i), Err: "no"}))
		}
		first := ok(r.Audit.List(ctx, 0, 3))(t)
		rest := ok(r.Audit.List(ctx, first[2].ID, 3))(t)
		if len(first) != 3 || first[0].On != "p4" || first[0].User != "ann" || first[0].Time.IsZero() || len(rest) != 2 || rest[1].On != "p0" {
			t.Errorf("read %+v, then %+v", first, rest)
		}
	})
}

func TestRecordsAndLimitsAreKept(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx, r := t.Context(), p.open()
		must(t, r.Records.Put(ctx, "leftover", "b", json.RawMessage(`{"n": 1}`)))
		must(t, r.Records.Put(ctx, "leftover", "a", json.RawMessage(`{"n": 2}`)))
		must(t, r.Records.Put(ctx, "leftover", "b", json.RawMessage(`{"n": 3}`)))
		must(t, r.Records.Put(ctx, "other", "b", json.RawMessage(`{}`)))
		must(t, r.Records.Drop(ctx, "other", "b"))
		must(t, r.Records.Drop(ctx, "other", "b"))
		if one, none := ok(r.Records.Get(ctx, "leftover", "b"))(t), ok(r.Records.Get(ctx, "leftover", "c"))(t); string(one) != `{"n": 3}` || none != nil {
			t.Errorf("records are %s and %s, want {\"n\": 3} and none", one, none)
		}
		recs := ok(r.Records.List(ctx, "leftover"))(t)
		if len(recs) != 2 || recs[0].ID != "a" || string(recs[1].Doc) != `{"n": 3}` || len(ok(r.Records.List(ctx, "other"))(t)) != 0 {
			t.Errorf("records %+v", recs)
		}
		must(t, r.Limits.Set(ctx, "host:esx1/rate", 100_000_000))
		must(t, r.Limits.Set(ctx, "host:esx1/vms", 0))
		must(t, r.Limits.Set(ctx, "host:esx2/vms", 5))
		must(t, r.Limits.Set(ctx, "host:esx2/vms", -1))
		limits := ok(r.Limits.List(ctx))(t)
		if len(limits) != 2 || limits[0].Name != "host:esx1/rate" || limits[0].Units != 100_000_000 || limits[1].Units != 0 {
			t.Errorf("limits %+v", limits)
		}
	})
}

// A plan whose row changed, or that has a VM that has not ended, does not advance.
func TestAdvanceDecidesByTheCurrentRow(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx, f := t.Context(), newFleet(t, p.open(), 1)
		state := func(want PlanState) Plan {
			t.Helper()
			p := ok(f.Plans.Get(ctx, "p"))(t)
			if p.State != want {
				t.Errorf("the plan is %s, want %s", p.State, want)
			}
			return p
		}
		old := state(PlanListing)
		must(t, f.Plans.SetCommand(ctx, "p", Pause))
		must(t, f.Plans.Advance(ctx, old, PlanRunning, nil)) // paused since
		must(t, f.Plans.Advance(ctx, state(PlanListing), PlanRunning, nil))
		must(t, f.Plans.Advance(ctx, state(PlanRunning), PlanEnded, nil)) // its VM is queued
		must(t, f.VMs.SetCommand(ctx, key(1), Cancel))
		must(t, f.Plans.Advance(ctx, state(PlanRunning), PlanEnded, nil))
		state(PlanEnded)
	})
}
