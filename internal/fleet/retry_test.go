package fleet

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/fleetdb"
)

func TestTransientFailureIsRetriedWithBackOff(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(1, 1)...)
	var began []time.Time
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		began = append(began, r.clock.Now())
		d.Step("copy", "")
		if len(began) < 5 {
			return errUnreachable
		}
		return m.transferCold(ctx, vm, d)
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	rests := map[int]time.Time{} // end of the rest after each attempt
	r.waitUntil("vm-1 to be done", func() bool {
		v := r.getVM("wave", "vm-1")
		if v.State == fleetdb.Queued && v.Attempts > 0 {
			rests[v.Attempts] = v.NotBefore
			r.clock.advance(time.Minute)
		}
		return v.State == fleetdb.Done
	})
	if len(began) != 5 || len(rests) == 0 {
		t.Fatalf("%d attempts, %d rests", len(began), len(rests))
	}
	for n, least := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 3: 40 * time.Second, 4: 80 * time.Second} {
		until, seen := rests[n] // not seen if the next attempt began before the test read the VM
		if rest := until.Sub(began[n-1]); seen && (rest < least || began[n].Before(until)) {
			t.Errorf("attempt %d began %v after the one before, whose rest was %v; want at least %v", n+1, began[n].Sub(began[n-1]), rest, least)
		}
	}
}

func TestTransientFailureRetriesAreLimited(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(1, 1)...)
	m.move = func(_ context.Context, _ fleetdb.VM, d Driver) error {
		d.Step("copy", "")
		return errUnreachable
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	r.waitThroughRests("wave", "vm-1", fleetdb.Failed)
	if n := m.moveCount(fleetdb.Key{Plan: "wave", VM: "vm-1"}); n != maxAttempts {
		t.Errorf("%d attempts, want %d", n, maxAttempts)
	}
	if v := r.getVM("wave", "vm-1"); v.Failure.Kind != fault.Unreachable.String() || v.Attempts != maxAttempts {
		t.Errorf("the failed VM is %+v", v)
	}
}

// waitThroughRests waits until a VM is in a state. It advances the clock while the VM waits for its next attempt.
func (r *testFleet) waitThroughRests(plan, ref string, s fleetdb.State) {
	r.Helper()
	r.waitUntil(ref+" to be "+string(s), func() bool {
		v := r.getVM(plan, ref)
		if v.State == fleetdb.Queued && v.Attempts > 0 {
			r.clock.advance(time.Minute)
		}
		return v.State == s
	})
}

// An attempt that makes progress resets the count of failed attempts.
func TestProgressResetsFailureCount(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(1, 1)...)
	tries := 0
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if tries++; tries > 2*maxAttempts {
			return m.transferCold(ctx, vm, d)
		}
		giveBack, err := d.RequestSlot(ctx, fleetdb.First, 0)
		if err != nil {
			return err
		}
		defer giveBack()
		d.Progress(fleetdb.Progress{Total: 1 << 30, Done: int64(tries)})
		d.Progress(fleetdb.Progress{Total: 1 << 30, Done: int64(tries + 1)})
		return errUnreachable
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	r.waitUntil("vm-1 to be done", func() bool {
		v := r.getVM("wave", "vm-1")
		if v.State == fleetdb.Queued && v.Attempts > 0 {
			r.clock.advance(time.Minute)
		}
		return v.State == fleetdb.Done
	})
}

func TestFailedVMDoesNotStopOthers(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(20, 2)...)
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		switch vm.VM {
		case "vm-3":
			return errCorrupt
		case "vm-4":
			return errOther
		case "vm-5": // removed from the source since the listing
			return fault.New(fault.NotFound, "VM %s is not there", vm.Name)
		}
		return m.transferCold(ctx, vm, d)
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	p := r.waitEnded("wave")
	if p.Counts[fleetdb.Done] != 17 || p.Counts[fleetdb.Failed] != 3 {
		t.Fatalf("the plan ended with %v", p.Counts)
	}
	if v := r.getVM("wave", "vm-3"); v.Failure.Kind != "corrupt" || v.Failure.Text != errCorrupt.Error() {
		t.Errorf("the failure of vm-3 is %+v", v.Failure)
	}
	m.move = nil
	r.sendCommand("wave", fleetdb.Retry)
	r.waitForVMs("wave", fleetdb.Done, 20)
	if p := r.waitEnded("wave"); len(m.hooks) != 2 {
		t.Errorf("after a retry: %v, hooks %v, want 2 hooks", p.Counts, m.hooks)
	}
}

// A login with a wrong password is tried once, however many VMs wait for it.
func TestRefusedLoginStopsLoginsUntilResume(t *testing.T) {
	r := newTestFleet(t, nil)
	var logins, right atomic.Int32
	worker := func(name string) {
		m, at := newFakeMover(t, vmsOn(60, 4)...), login.NewLimiter(r.db, "vc1:443", "")
		m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
			err := tryLogin(ctx, at, func() error {
				logins.Add(1)
				if right.Load() == 0 {
					return errDenied
				}
				return nil
			})
			if err != nil {
				return err
			}
			return m.transferCold(ctx, vm, d)
		}
		r.startNode(r.nodeConfig(m, name))
	}
	r.submitPlan("wave")
	worker("w1")
	worker("w2")
	r.waitUntil("the plan to report the refused login", func() bool { f := r.getPlan("wave").Failure; return f != nil && f.Kind == "denied" })
	r.waitForVMs("wave", fleetdb.Queued, 60)
	if n := logins.Load(); n != 1 {
		t.Errorf("%d logins were refused, want 1", n)
	}
	f := r.getPlan("wave").Failure
	if want := "login to vc1:443 was refused: " + errDenied.Error(); f.Text != want {
		t.Errorf("the failure of the plan is %q, want %q", f.Text, want)
	}
	right.Store(1)
	r.sendCommand("wave", fleetdb.GoOn)
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 60 || p.Failure != nil {
		t.Errorf("the plan ended with %v and failure %v", p.Counts, p.Failure)
	}
	if n := logins.Load(); n != 61 {
		t.Errorf("%d logins, want 61", n)
	}
}

func TestRefusedListingIsNotRetriedAutomatically(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(2, 1)...)
	var logins atomic.Int32
	var right atomic.Bool
	at := login.NewLimiter(r.db, "vc1:443", "")
	m.list = func(ctx context.Context, _ fleetdb.Plan, found func([]fleetdb.VM) error) error {
		err := tryLogin(ctx, at, func() error {
			logins.Add(1)
			if !right.Load() {
				return errDenied
			}
			return nil
		})
		if err != nil {
			return err
		}
		return found(m.vms)
	}
	r.submitPlan("wave")
	n := r.startNode(r.nodeConfig(m, "w1"))
	shown := func() bool { f := r.getPlan("wave").Failure; return f != nil && f.Kind == "denied" }
	r.waitUntil("the plan to report the refused login", shown)
	r.clock.advance(10 * time.Minute)
	n.end()
	r.startNode(r.nodeConfig(m, "w1")) // the next scheduler does not log in either
	r.waitUntil("the plan to report the refused login", shown)
	if n := logins.Load(); n != 1 {
		t.Errorf("%d logins were refused, want 1", n)
	}
	right.Store(true)
	r.sendCommand("wave", fleetdb.GoOn)
	r.waitUntil("the end of the plan", func() bool { r.clock.advance(time.Second); return r.getPlan("wave").State.IsFinal() })
}

// A host refuses its login by SSH. The VMs of that host wait, and the VMs of other hosts do not.
func TestHostRefusingLoginPausesOnlyItsVMs(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(30, 3)...)
	var logins atomic.Int32
	var right atomic.Bool
	at := login.NewLimiter(r.db, "vc1:443", "esx1")
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if vm.Host == "esx1" {
			err := tryLogin(ctx, at, func() error {
				if right.Load() {
					return nil
				}
				logins.Add(1)
				return errDenied
			})
			if err != nil {
				return err
			}
		}
		return m.transferCold(ctx, vm, d)
	}
	r.submitPlan("wave")
	c := r.nodeConfig(m, "w1")
	c.TTL = shortTTL // the state of the scheduler is written several times in that
	r.startNode(c)
	r.waitForVMs("wave", fleetdb.Done, 20)
	r.waitForVMs("wave", fleetdb.Queued, 10)
	why := "login to host esx1 by SSH was refused"
	r.waitUntil("the scheduler to report the refused login", func() bool {
		b := r.schedulerSnapshot()
		return len(b.Breakers) == 1 && b.Breakers[0].Object == "host esx1" && len(b.Waiting) == 10 && strings.HasPrefix(b.Waiting[0].Reason, why)
	})
	if n := logins.Load(); n != 1 {
		t.Errorf("%d logins were refused, want 1", n)
	}
	right.Store(true)
	r.sendCommand("wave", fleetdb.GoOn)
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 30 || p.Failure != nil {
		t.Errorf("the plan ended with %v and failure %v", p.Counts, p.Failure)
	}
}

// The values of package admission.
const (
	failuresInARow = 3
	firstRest      = 30 * time.Second
)

// A host that is unreachable rests, and then tries one VM. The VMs of other hosts are moved meanwhile.
func TestUnreachableHostPausesOnlyItsVMs(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(60, 3)...)
	var away atomic.Bool
	var onESX1 atomic.Int32
	away.Store(true)
	m.caps = map[string]int64{"host:*/vms": 5}
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		d.Step("copy", "")
		if vm.Host == "esx1" && away.Load() {
			onESX1.Add(1)
			return errUnreachable
		}
		return m.transferCold(ctx, vm, d)
	}
	r.submitPlan("wave")
	first := r.startNode(r.nodeConfig(m, "w1"))
	r.waitForVMs("wave", fleetdb.Done, 40)
	rests := func() bool {
		records, err := r.db.Records.List(t.Context(), hostHealth)
		return err == nil && len(records) == 1 && strings.Contains(string(records[0].Doc), `"until"`)
	}
	r.waitUntil("esx1 to fail", func() bool {
		return onESX1.Load() >= failuresInARow && r.getPlan("wave").Counts[fleetdb.Queued] == 20 && rests()
	})
	failed := onESX1.Load()
	if failed > 5+failuresInARow {
		t.Errorf("%d VMs were tried on an unreachable host", failed)
	}
	first.end() // the host also rests for the next scheduler
	r.startNode(r.nodeConfig(m, "w1"))
	r.clock.advance(firstPause + time.Second)
	r.submitPlan("wave-2")
	r.waitForVMs("wave-2", fleetdb.Done, 40)
	if n := onESX1.Load(); n != failed {
		t.Errorf("the next scheduler tried %d VMs on the host", n-failed)
	}
	r.sendCommand("wave-2", fleetdb.Cancel)
	r.waitEnded("wave-2")
	r.clock.advance(firstRest + time.Second)
	r.waitUntil("one VM to try the host", func() bool { return onESX1.Load() > failed })
	r.waitForVMs("wave", fleetdb.Queued, 20)
	if n := onESX1.Load() - failed; n != 1 {
		t.Errorf("%d VMs tried the host again, want 1", n)
	}
	away.Store(false)
	r.waitUntil("the end of the plan", func() bool {
		r.clock.advance(time.Minute)
		return r.getPlan("wave").State.IsFinal()
	})
	if n := r.getPlan("wave").Counts[fleetdb.Done]; n != 60 {
		t.Errorf("%d of 60 are done", n)
	}
	if left, err := r.db.Records.List(t.Context(), hostHealth); err != nil || len(left) > 0 {
		t.Errorf("host records are %s, %v; want none", left, err)
	}
}

// Each attempt adds the bytes that it read to the counters. The attempt that publishes the VM adds its result, even if
// the worker ends at once afterwards.
func TestAttemptsAreCounted(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(1, 1)...)
	tries := 0
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if err := d.Storage([]string{"disk-dir:/srv/vm"}); err != nil {
			return err
		}
		d.Progress(fleetdb.Progress{Read: 100})
		d.Progress(fleetdb.Progress{Read: 250})
		if tries++; tries < 2 {
			return errUnreachable
		}
		d.Published(fleetdb.Summary{Outage: time.Minute, Rates: []float64{9}})
		return nil
	}
	r.submitPlan("wave")
	n := r.startNode(r.nodeConfig(m, "w1"))
	r.waitThroughRests("wave", "vm-1", fleetdb.Done)
	n.end()
	got, err := r.db.Counters.Totals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Read["wave"] != 500 || got.Attempts[fleetdb.AttemptRetried] != 1 || got.Attempts[fleetdb.AttemptDone] != 1 || got.Outages.Sum != 60 || got.Rates.Sum != 9 {
		t.Errorf("totals %+v", got)
	}
}
