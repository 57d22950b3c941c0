package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// reapTTL can be divided by renewals.
const reapTTL = 9 * time.Second

// dead puts a worker and a scheduler in one process, which drives a VM, on record; that is all that
// is ever heard of them. It returns the worker's lease.
func (r *rig) dead() fleetdb.Lease {
	r.Helper()
	ctx := r.Context()
	worker, err := r.db.Workers.Join(ctx, fleetdb.Worker{Name: "dead", Offers: map[string]string{"/srv": "disk-dir:/srv/vm"}, VMs: 10}, reapTTL)
	if err != nil {
		r.Fatal(err)
	}
	scheduler, err := r.db.Leases.Acquire(ctx, schedulerLease, "dead", reapTTL)
	if err != nil {
		r.Fatal(err)
	}
	r.submit("wave")
	v := vmsOn(1, 1)[0]
	v.Plan, v.Seq, v.State, v.Requested, v.Runs = "wave", 1, fleetdb.Queued, fleetdb.First, []string{"run"}
	if err := r.db.VMs.Add(ctx, []fleetdb.VM{v}); err != nil {
		r.Fatal(err)
	}
	if err := r.db.Plans.SetState(ctx, "wave", fleetdb.PlanRunning, nil); err != nil {
		r.Fatal(err)
	}
	granted, err := r.db.Scheduling.Grant(ctx, scheduler, []fleetdb.Granted{{Key: v.Key, Worker: "dead"}})
	if err != nil || len(granted) != 1 {
		r.Fatal(granted, err)
	}
	claim := fleetdb.Claim{Key: v.Key, Worker: "dead", Epoch: granted[0].Epoch}
	if err := r.db.Claims.Begin(ctx, claim, []string{"disk-dir:/srv/vm"}); err != nil {
		r.Fatal(err)
	}
	return worker
}

// candidate starts a scheduler that finds the lease taken, and whose pauses before the next
// attempts are so long. From then on time stands still, and somebody looks at the board.
func (r *rig) candidate(pauses ...time.Duration) {
	c := r.only(r.config(newMover(r), "next"), true, false)
	c.TTL = reapTTL
	c.Sleep = func(ctx context.Context, d time.Duration) error {
		if len(pauses) == 0 { // in office, or about to be
			return r.clock.Sleep(ctx, d)
		}
		r.clock.add(pauses[0])
		pauses = pauses[1:]
		return r.db.SchedulerState.Request(ctx)
	}
	r.start(c)
}

// looked waits until the scheduler has looked at who lives, once: the board is written after that.
func (r *rig) looked() {
	r.Helper()
	r.wait("the board", func() bool {
		_, at, err := r.db.SchedulerState.Read(r.Context())
		return err == nil && at.Equal(r.clock.Now())
	})
}

// A scheduler dies with the worker in its process. The next one has asked for the lease all
// the time: it knows that the worker could have renewed, and waits no longer.
func TestNextSchedulerKnowsThatTheDatabaseWasThere(t *testing.T) {
	r := newRig(t, newClock())
	r.dead()
	r.candidate(reapTTL/renewals, reapTTL/renewals, reapTTL/renewals)
	r.looked()
	if v := r.vm("wave", "vm-1"); v.State != fleetdb.Stranded {
		t.Errorf("its VM is %s at %s", v.State, v.Worker)
	}
}

// The database was away, or this process: nobody knows who could not renew.
func TestNextSchedulerLetsWorkersComeBack(t *testing.T) {
	r := newRig(t, newClock())
	lease := r.dead()
	r.candidate(reapTTL/renewals, reapTTL)
	r.looked()
	if v := r.vm("wave", "vm-1"); v.State != fleetdb.Running || v.Worker != "dead" {
		t.Errorf("its VM is %s at %s", v.State, v.Worker)
	}
	if err := r.db.Leases.Renew(t.Context(), &lease, reapTTL); err != nil {
		t.Errorf("it cannot come back: %v", err)
	}
}

// A scheduler looks again when a lease ends that was not renewed, and when it may act upon that; not
// only three times in the length of a lease.
func TestLeasesThatEndAreLookedAtAtOnce(t *testing.T) {
	at := newClock().now
	for _, c := range []struct {
		name         string
		until, grace time.Duration // of a worker's lease, and of the scheduler, from the last tick
		want         time.Duration
	}{
		{"all renew", 6 * time.Second, 0, reapTTL / renewals},
		{"one ends soon", time.Second, 0, time.Second},
		{"one ended before", -time.Second, 0, reapTTL / renewals},
		{"one ends before anything may be taken", time.Second, 2 * time.Second, time.Second},
		{"one ended, and may be acted upon soon", -time.Second, 2 * time.Second, 2 * time.Second},
	} {
		s := newScheduler(New(Config{TTL: reapTTL}).Config, fleetdb.Lease{}, 0, nil)
		s.ticked, s.lostAfter = at, at.Add(c.grace)
		s.admission.SetWorkers([]fleetdb.Worker{{Name: "w", Until: at.Add(c.until)}})
		if got := s.nextTick().Sub(at); got != c.want {
			t.Errorf("%s: after %v, want %v", c.name, got, c.want)
		}
	}
}

func TestContact(t *testing.T) {
	const ttl = 9 * time.Second
	at := newClock().now
	for _, c := range []struct {
		name  string
		gaps  []time.Duration
		grace time.Duration
	}{
		{"the first answer", nil, ttl},
		{"some answers", []time.Duration{3 * time.Second, 3 * time.Second}, 3 * time.Second},
		{"answers for long enough", []time.Duration{4 * time.Second, 4 * time.Second, 4 * time.Second}, 0},
		{"a gap that leases outlast", []time.Duration{ttl / 2, ttl / 2}, 0},
		{"a gap that they may not", []time.Duration{4 * time.Second, 4 * time.Second, 4 * time.Second, ttl/2 + 1}, ttl},
		{"a clock that was put back", []time.Duration{4 * time.Second, -time.Hour}, ttl},
	} {
		var k databaseContact
		now := at
		k.noteAnswer(now, ttl)
		for _, gap := range c.gaps {
			now = now.Add(gap)
			k.noteAnswer(now, ttl)
		}
		if got := k.graceLeft(now, ttl); got != c.grace {
			t.Errorf("%s: %v, want %v", c.name, got, c.grace)
		}
	}
}
