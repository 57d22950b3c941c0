package fleet

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// waits has a plan of one warm VM whose Move waits for its cutover, and returns its driver.
func (r *rig) waits(m *mover) (Driver, chan struct{}) {
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
	r.submit("wave")
	r.start(r.config(m, "w1"))
	return next(r, drivers), cut
}

var vm1 = fleetdb.Key{Plan: "wave", VM: "vm-1"}

func (r *rig) rehearse(id string) {
	r.Helper()
	if err := r.db.Rehearsals.Request(r.Context(), vm1, fleetdb.Rehearsal{ID: id, Expect: "up"}); err != nil {
		r.Fatal(err)
	}
}

// answered waits for how a rehearsal ended.
func (r *rig) answered(id string) (done fleetdb.Rehearsed) {
	r.Helper()
	r.wait("the answer to "+id, func() bool {
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

// told waits until the Mover was told so of rehearsals.
func (r *rig) told(m *mover, of *[]string, want ...string) {
	r.Helper()
	r.wait("the Mover to be told", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.Equal(*of, want)
	})
}

// What is asked of a VM its Mover is told once, and what comes of it is on record.
func TestRehearsalIsTheWorkers(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t)
	d, cut := r.waits(m)
	r.rehearse("1")
	r.told(m, &m.asked, "1")
	r.order("wave/vm-1", fleetdb.Pause) // news of the VM are no other rehearsal
	d.Step("wait", "paused")
	d.Rehearsed(fleetdb.Rehearsed{Rehearsal: fleetdb.Rehearsal{ID: "0"}}) // of another time
	d.Rehearsed(fleetdb.Rehearsed{Rehearsal: fleetdb.Rehearsal{ID: "1"}, Report: json.RawMessage(`{"verdict":"booted"}`), Tail: "up"})
	if done := r.answered("1"); done.Worker != "w1" || done.Expect != "up" || done.Tail != "up" || string(done.Report) != `{"verdict":"booted"}` || done.Failure != nil {
		t.Errorf("answered %+v", done)
	}
	r.rehearse("2")
	r.told(m, &m.asked, "1", "2")
	if err := r.db.Rehearsals.TakeBack(t.Context(), vm1, "2"); err != nil {
		t.Fatal(err)
	}
	r.told(m, &m.taken, "1", "2") // the first had ended
	d.Rehearsed(fleetdb.Rehearsed{Rehearsal: fleetdb.Rehearsal{ID: "2"}})
	m.mu.Lock()
	m.boot = func(fleetdb.Rehearsal) error { return fault.New(fault.Conflict, "another one stands") }
	m.mu.Unlock()
	r.rehearse("3")
	if done := r.answered("3"); done.Failure == nil || done.Failure.Kind != "conflict" || done.Failure.Text != "another one stands" {
		t.Errorf("answered %+v", done)
	}
	close(cut)
	r.waitEnded("wave")
	if all, err := r.db.Rehearsals.List(t.Context(), vm1); err != nil || len(all) != 1 || all[0].ID != "3" {
		t.Errorf("on record: %+v, %v", all, err)
	}
}

// What a worker did not answer before it ended it is asked again when it is back.
func TestRehearsalOutlivesItsWorker(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(1, 1)...)
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
	r.submit("wave")
	r.start(r.only(r.config(m, "s"), true, false))
	dead, kill := context.WithCancel(t.Context())
	r.start(r.only(r.config(killed{m, dead}, "w1"), false, true)) // its end is no matter: it is fenced
	next(t, drivers)
	r.rehearse("1")
	r.told(m, &m.asked, "1")
	kill()
	r.wait("it to be dead", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.driving[vm1] == 0
	})
	r.start(r.only(r.config(m, "w1"), false, true))
	d := next(t, drivers)
	r.told(m, &m.asked, "1", "1")
	d.Rehearsed(fleetdb.Rehearsed{Rehearsal: fleetdb.Rehearsal{ID: "1"}, Tail: "up"})
	if done := r.answered("1"); done.Tail != "up" {
		t.Errorf("answered %+v", done)
	}
}
