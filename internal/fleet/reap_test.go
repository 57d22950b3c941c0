package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// reapTTL is a multiple of renewals.
const reapTTL = 9 * time.Second

// addDeadWorker records a worker that is also the scheduler and drives a VM. Neither renews its lease. It returns the
// worker's lease.
func (r *testFleet) addDeadWorker() fleetdb.Lease {
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
	r.submitPlan("wave")
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

// startCandidate starts a node that waits for the scheduler's lease. Its pauses between attempts have the given
// lengths. After the last pause the clock stands still. Each pause requests the state of the scheduler.
func (r *testFleet) startCandidate(pauses ...time.Duration) {
	c := r.withRoles(r.nodeConfig(newFakeMover(r), "next"), true, false)
	c.TTL = reapTTL
	c.Sleep = func(ctx context.Context, d time.Duration) error {
		if len(pauses) == 0 { // the scheduler, or about to become it
			return r.clock.Sleep(ctx, d)
		}
		r.clock.advance(pauses[0])
		pauses = pauses[1:]
		return r.db.SchedulerState.Request(ctx)
	}
	r.startNode(c)
}

// waitForTick waits until the scheduler has checked the workers once. It writes its state after that.
func (r *testFleet) waitForTick() {
	r.Helper()
	r.waitUntil("the state of the scheduler", func() bool {
		_, at, err := r.db.SchedulerState.Read(r.Context())
		return err == nil && at.Equal(r.clock.Now())
	})
}

// A scheduler dies together with the worker in its process. The next scheduler has requested the lease all the time.
// It knows that the worker could have renewed its lease, and takes over the VM at once.
func TestNextSchedulerTakesVMsOfDeadWorker(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	r.addDeadWorker()
	r.startCandidate(reapTTL/renewals, reapTTL/renewals, reapTTL/renewals)
	r.waitForTick()
	if v := r.getVM("wave", "vm-1"); v.State != fleetdb.Stranded {
		t.Errorf("vm-1 is %s on worker %q, want %s", v.State, v.Worker, fleetdb.Stranded)
	}
}

// The next scheduler had no contact with the database for the length of a lease. Workers may have been unable to renew
// their leases, so it takes no VM from them yet.
func TestNextSchedulerWaitsForWorkersAfterOutage(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	lease := r.addDeadWorker()
	r.startCandidate(reapTTL/renewals, reapTTL)
	r.waitForTick()
	if v := r.getVM("wave", "vm-1"); v.State != fleetdb.Running || v.Worker != "dead" {
		t.Errorf("vm-1 is %s on worker %q, want %s on worker dead", v.State, v.Worker, fleetdb.Running)
	}
	if err := r.db.Leases.Renew(t.Context(), &lease, reapTTL); err != nil {
		t.Errorf("the worker cannot renew its lease: %v", err)
	}
}

// The scheduler ticks three times in the length of a lease. It also ticks when a lease expires, and when
// its grace period ends.
func TestSchedulerTicksWhenLeasesExpire(t *testing.T) {
	at := newFakeClock().now
	for _, c := range []struct {
		name         string
		until, grace time.Duration // end of the worker's lease and of the grace period, from the last tick
		want         time.Duration
	}{
		{"lease is renewed", 6 * time.Second, 0, reapTTL / renewals},
		{"lease expires soon", time.Second, 0, time.Second},
		{"lease has expired", -time.Second, 0, reapTTL / renewals},
		{"lease expires before the end of the grace period", time.Second, 2 * time.Second, time.Second},
		{"lease has expired and the grace period ends soon", -time.Second, 2 * time.Second, 2 * time.Second},
	} {
		s := newScheduler(New(Config{TTL: reapTTL}).Config, fleetdb.Lease{}, 0, nil)
		s.ticked, s.lostAfter = at, at.Add(c.grace)
		s.admission.SetWorkers([]fleetdb.Worker{{Name: "w", Until: at.Add(c.until)}})
		if got := s.nextTick().Sub(at); got != c.want {
			t.Errorf("%s: next tick after %v, want %v", c.name, got, c.want)
		}
	}
}

func TestContact(t *testing.T) {
	const ttl = 9 * time.Second
	at := newFakeClock().now
	for _, c := range []struct {
		name  string
		gaps  []time.Duration
		grace time.Duration
	}{
		{"first answer", nil, ttl},
		{"some answers", []time.Duration{3 * time.Second, 3 * time.Second}, 3 * time.Second},
		{"answers for the length of a lease", []time.Duration{4 * time.Second, 4 * time.Second, 4 * time.Second}, 0},
		{"longest gap in which no lease expires", []time.Duration{ttl / 2, ttl / 2}, 0},
		{"gap in which leases may expire", []time.Duration{4 * time.Second, 4 * time.Second, 4 * time.Second, ttl/2 + 1}, ttl},
		{"clock set back", []time.Duration{4 * time.Second, -time.Hour}, ttl},
	} {
		var k databaseContact
		now := at
		k.noteAnswer(now, ttl)
		for _, gap := range c.gaps {
			now = now.Add(gap)
			k.noteAnswer(now, ttl)
		}
		if got := k.graceLeft(now, ttl); got != c.grace {
			t.Errorf("%s: grace is %v, want %v", c.name, got, c.grace)
		}
	}
}
