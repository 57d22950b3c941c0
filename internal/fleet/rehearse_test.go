package fleet

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// startWaitingVM starts a plan with one warm VM whose Move waits for its cutover. It returns the VM's Driver, and the
// channel whose close lets Move return.
func (r *testFleet) startWaitingVM(m *fakeMover) (Driver, chan struct{}) {
	r.Helper()
	m.vms = vmsOn(1, 1)
	m.vms[0].Warm = true
	drivers, cut := make(chan Driver, 10), make(chan struct{})
	m.move = func(ctx context.Context, _ fleetdb.VM, d Driver) error {
		if err := d.Storage([]string{"disk-dir:/srv/vm"}); err != nil {
			return err
		}
		d.Step("wait", "for the cutover")
		drivers <- d
		select {
		case <-cut:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	return receive(r, drivers), cut
}

var vm1 = fleetdb.Key{Plan: "wave", VM: "vm-1"}

func (r *testFleet) requestRehearsal(id string) {
	r.Helper()
	if err := r.db.Rehearsals.Request(r.Context(), vm1, fleetdb.Rehearsal{ID: id, Expect: "up"}); err != nil {
		r.Fatal(err)
	}
}

// waitForResult returns the result of a rehearsal when it has ended.
func (r *testFleet) waitForResult(id string) (done fleetdb.Rehearsed) {
	r.Helper()
	r.waitUntil("the result of rehearsal "+id, func() bool {
		all, err := r.db.Rehearsals.List(r.Context(), vm1)
		if err != nil {
			r.Fatal(err)
		}
		i := slices.IndexFunc(all, func(d fleetdb.Rehearsed) bool { return d.ID == id && !d.Ended.IsZero() })
		if i >= 0 {
			done = all[i]
		}
		return i >= 0
	})
	return done
}

// waitForCalls waits until the calls of the Mover have the wanted rehearsals.
func (r *testFleet) waitForCalls(m *fakeMover, calls *[]string, want ...string) {
	r.Helper()
	r.waitUntil("the calls of the Mover", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.Equal(*calls, want)
	})
}

// A requested rehearsal is passed to the Mover once, and its result is recorded.
func TestRehearsalIsPassedToTheMover(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t)
	d, cut := r.startWaitingVM(m)
	r.requestRehearsal("1")
	r.waitForCalls(m, &m.rehearsals, "1")
	r.sendCommand("wave/vm-1", fleetdb.Pause) // a change of the VM repeats no request
	d.Step("wait", "paused")
	d.Rehearsed(fleetdb.Rehearsed{Rehearsal: fleetdb.Rehearsal{ID: "0"}}) // not requested
	d.Rehearsed(fleetdb.Rehearsed{Rehearsal: fleetdb.Rehearsal{ID: "1"}, Report: json.RawMessage(`{"verdict":"booted"}`), Tail: "up"})
	if done := r.waitForResult("1"); done.Worker != "w1" || done.Expect != "up" || done.Tail != "up" || string(done.Report) != `{"verdict":"booted"}` || done.Failure != nil {
		t.Errorf("the result is %+v", done)
	}
	r.requestRehearsal("2")
	r.waitForCalls(m, &m.rehearsals, "1", "2")
	if err := r.db.Rehearsals.TakeBack(t.Context(), vm1, "2"); err != nil {
		t.Fatal(err)
	}
	r.waitForCalls(m, &m.takenBack, "1", "2") // TakeBack is called for "1", too, which has ended
	d.Rehearsed(fleetdb.Rehearsed{Rehearsal: fleetdb.Rehearsal{ID: "2"}})
	m.mu.Lock()
	m.rehearse = func(fleetdb.Rehearsal) error { return fault.New(fault.Conflict, "another one stands") }
	m.mu.Unlock()
	r.requestRehearsal("3")
	if done := r.waitForResult("3"); done.Failure == nil || done.Failure.Kind != "conflict" || done.Failure.Text != "another one stands" {
		t.Errorf("the result is %+v", done)
	}
	close(cut)
	r.waitEnded("wave")
	if all, err := r.db.Rehearsals.List(t.Context(), vm1); err != nil || len(all) != 1 || all[0].ID != "3" {
		t.Errorf("recorded rehearsals are %+v, %v; want only 3", all, err)
	}
}

// A worker ends before a rehearsal has. When it is started again, its Mover gets the request again.
func TestRehearsalIsRequestedAgainAfterWorkerRestart(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(1, 1)...)
	m.vms[0].Warm = true
	drivers := make(chan Driver, 10)
	m.move = func(ctx context.Context, _ fleetdb.VM, d Driver) error {
		if err := d.Storage([]string{"disk-dir:/srv/vm"}); err != nil {
			return err
		}
		d.Step("wait", "")
		drivers <- d
		<-ctx.Done()
		return ctx.Err()
	}
	r.submitPlan("wave")
	r.startNode(r.withRoles(r.nodeConfig(m, "s"), true, false))
	dead, kill := context.WithCancel(t.Context())
	r.startNode(r.withRoles(r.nodeConfig(killableMover{m, dead}, "w1"), false, true)) // fenced by the second w1
	receive(t, drivers)
	r.requestRehearsal("1")
	r.waitForCalls(m, &m.rehearsals, "1")
	kill()
	r.waitUntil("the first worker to stop", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.driving[vm1] == 0
	})
	r.startNode(r.withRoles(r.nodeConfig(m, "w1"), false, true))
	d := receive(t, drivers)
	r.waitForCalls(m, &m.rehearsals, "1", "1")
	d.Rehearsed(fleetdb.Rehearsed{Rehearsal: fleetdb.Rehearsal{ID: "1"}, Tail: "up"})
	if done := r.waitForResult("1"); done.Tail != "up" {
		t.Errorf("the result is %+v", done)
	}
}
