package fleetdb

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// followChanges applies all changes after a revision to vms, and returns the newest revision.
func followChanges(t *testing.T, r *Database, since int64, vms map[Key]VM) int64 {
	t.Helper()
	for {
		c := ok(r.Feed.Changes(t.Context(), since))(t)
		for _, plan := range c.Dropped {
			for k := range vms {
				if k.Plan == plan {
					delete(vms, k)
				}
			}
		}
		for _, v := range c.VMs {
			vms[v.Key] = v
		}
		if c.Rev == since {
			return since
		}
		since = c.Rev
	}
}

func TestFollowedChangesMatchTables(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		const some = 30
		ctx, r := t.Context(), p.open()
		r.Feed.page = some
		vms := map[Key]VM{}
		var since int64
		compare := func(what string) {
			t.Helper()
			since = followChanges(t, r, since, vms)
			all := ok(r.VMs.List(ctx, Query{}))(t)
			for _, v := range all {
				if got := vms[v.Key]; got.Rev != v.Rev || got.State != v.State {
					t.Fatalf("%s: %s is %s at %d, want %s at %d", what, v.Key, got.State, got.Rev, v.State, v.Rev)
				}
			}
			if rev := ok(r.Feed.Newest(ctx))(t); rev != since {
				t.Fatalf("%s: the newest revision is %d, and a follower is at %d", what, rev, since)
			}
			if len(all) != len(vms) {
				t.Fatalf("%s: a follower has %d VMs, want %d", what, len(vms), len(all))
			}
		}
		ok(r.Plans.Add(ctx, Plan{Name: "p", Text: "x"}))(t)
		ok(r.Plans.Add(ctx, Plan{Name: "q", Text: "x"}))(t)
		must(t, r.VMs.Add(ctx, someVMs("q", 20)))
		must(t, r.VMs.Add(ctx, someVMs("p", some-10)))
		must(t, r.Plans.SetCommand(ctx, "q", Cancel)) // one revision on two pages
		compare("added, with a revision on two pages")
		must(t, r.VMs.Add(ctx, someVMs("p", 2*some+10)))
		compare("added")
		must(t, r.Plans.SetCommand(ctx, "p", Cancel)) // one revision of more than a page
		compare("canceled")
		must(t, r.Plans.SetState(ctx, "p", PlanEnded, nil))
		must(t, r.Plans.Drop(ctx, "p"))
		ok(r.Plans.Add(ctx, Plan{Name: "p", Text: "y"}))(t)
		must(t, r.VMs.Add(ctx, someVMs("p", some+10)))
		compare("dropped and added again")
		if c := ok(r.Feed.Changes(ctx, since))(t); c.Rev != since || len(c.VMs)+len(c.Plans)+len(c.Dropped) != 0 {
			t.Errorf("got changes %+v, want none", c)
		}
	})
}

func TestChangesOfPlansWorkersAndLimitsAreReturned(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 1)
		since := followChanges(t, f.Database, 0, map[Key]VM{})
		next := func() Changes {
			t.Helper()
			c := ok(f.Feed.Changes(ctx, since))(t)
			since = c.Rev
			return c
		}
		must(t, f.Plans.SetCommand(ctx, "p", Pause))
		if c := next(); len(c.Plans) != 1 || c.Plans[0].Command != Pause {
			t.Errorf("paused: %+v", c)
		}
		must(t, f.Workers.Drain(ctx, "w1", true))
		if c := next(); len(c.Workers) != 1 || !c.Workers[0].Drains || !c.Workers[0].Alive || len(c.Plans) != 0 {
			t.Errorf("drained: %+v", c)
		}
		must(t, f.Limits.Set(ctx, "host:esx1/vms", 4))
		if c := next(); len(c.Limits) != 1 || c.Limits[0].Units != 4 {
			t.Errorf("limited: %+v", c)
		}
		must(t, f.Limits.Set(ctx, "host:esx1/vms", -1))
		if c := next(); len(c.Limits) != 1 || c.Limits[0].Units != -1 {
			t.Errorf("limit removed: %+v", c)
		}
		must(t, f.Limits.Set(ctx, "host:esx1/vms", -1))
		w := f.workers["w1"]
		must(t, f.Leases.Renew(ctx, &w, aMinute))
		if c := ok(f.Feed.Changes(ctx, since))(t); c.Rev != since {
			t.Errorf("calls without an effect made a revision: %+v", c)
		}
	})
}

func TestWaitForChangeSeesOwnAndOtherChanges(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx, one, two := t.Context(), p.open(), p.open()
		ok(one.Plans.Add(ctx, Plan{Name: "p"}))(t)
		for round, writer := range []*Database{one, two, one, two} {
			since := ok(one.Feed.Changes(ctx, 0))(t).Rev
			const waiters = 20
			done := make(chan error, 2*waiters)
			for range waiters {
				go func() { done <- one.Feed.WaitForChange(ctx, since) }()
				go func() { done <- two.Feed.WaitForChange(ctx, since) }()
			}
			must(t, writer.Limits.Set(ctx, "x", int64(round)))
			for range cap(done) {
				select {
				case err := <-done:
					must(t, err)
				case <-time.After(waitTimeout):
					t.Fatalf("round %d: a waiter was not woken", round)
				}
			}
		}
		one.db.revisions.poll <- struct{}{} // no process polls; the own changes are seen nevertheless
		since := ok(one.Feed.Changes(ctx, 0))(t).Rev
		own := make(chan error)
		go func() { own <- one.Feed.WaitForChange(ctx, since) }()
		must(t, one.Limits.Set(ctx, "x", 99))
		must(t, <-own)
		<-one.db.revisions.poll
		gone, cancel := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- one.Feed.WaitForChange(gone, 1<<60) }()
		cancel()
		if err := <-done; err == nil {
			t.Error("WaitForChange returned no error when its context ended")
		}
	})
}

// Ten waiters poll as often as one, so that an idle fleet causes little load.
func TestWaitersPollTogether(t *testing.T) {
	r := newSQLite(t).open()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	const waiters = 10
	for range waiters {
		go func() { done <- r.Feed.WaitForChange(ctx, 1<<60) }()
	}
	polls, last := 0, r.db.revisions.lastPoll()
	for polls < 3 {
		at := r.db.revisions.lastPoll()
		if at.Equal(last) {
			<-time.After(pollEvery / 50)
			continue
		}
		if gap := at.Sub(last); gap < pollEvery {
			t.Errorf("polled again after %v", gap)
		}
		last = at
		polls++
	}
	cancel()
	for range waiters {
		<-done
	}
}

func (r *revisions) lastPoll() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.polled
}

func TestPagesOfVMs(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 25)
		f.runVM(3, "w1")
		f.runVM(7, "w2")
		var seen []string
		for after := int64(0); ; {
			page := ok(f.VMs.List(ctx, Query{Plan: "p", After: after, Limit: 10}))(t)
			if len(page) == 0 {
				break
			}
			for _, v := range page {
				seen = append(seen, v.VM)
				after = v.Seq
			}
		}
		if len(seen) != 25 || seen[0] != "vm-1" || seen[24] != "vm-25" {
			t.Errorf("the pages contain %v, want vm-1 to vm-25", seen)
		}
		if vms := ok(f.VMs.List(ctx, Query{States: []State{Assigned, Running}}))(t); len(vms) != 2 {
			t.Errorf("%d VMs run, want 2", len(vms))
		}
		if vms := ok(f.VMs.List(ctx, Query{Worker: "w2", States: []State{Running}}))(t); len(vms) != 1 || vms[0].Key != key(7) || vms[0].Spec != nil {
			t.Errorf("w2 has %+v", vms)
		}
		if got := fmt.Sprint(ok(f.Plans.Get(ctx, "p"))(t).Counts); got != "map[queued:23 running:2]" {
			t.Errorf("counts are %s", got)
		}
	})
}
