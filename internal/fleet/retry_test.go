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

func TestPassingFailureIsTriedAgainWithBackOff(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(1, 1)...)
	var began []time.Time
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		began = append(began, r.clock.Now())
		d.Step("copy", "")
		if len(began) < 5 {
			return errAway
		}
		return m.transfer(ctx, vm, d)
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	rests := map[int]time.Time{}
	r.wait("vm-1 to be done", func() bool {
		v := r.vm("wave", "vm-1")
		if v.State == fleetdb.Queued && v.Attempts > 0 {
			rests[v.Attempts] = v.NotBefore
			r.clock.add(time.Minute)
		}
		return v.State == fleetdb.Done
	})
	if len(began) != 5 || len(rests) == 0 {
		t.Fatalf("%d attempts, %d rests", len(began), len(rests))
	}
	for n, least := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 3: 40 * time.Second, 4: 80 * time.Second} {
		until, seen := rests[n] // not seen if the next attempt was as fast as the look
		if rest := until.Sub(began[n-1]); seen && (rest < least || began[n].Before(until)) {
			t.Errorf("after attempt %d began, %v passed until the next, with a rest until %v; want at least %v", n, began[n].Sub(began[n-1]), rest, least)
		}
	}
}

func TestPassingFailureIsNotTriedForEver(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(1, 1)...)
	m.move = func(_ context.Context, _ fleetdb.VM, d Driver) error {
		d.Step("copy", "")
		return errAway
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.untilTriedAndRested("wave", "vm-1", fleetdb.Failed)
	if n := m.times(fleetdb.Key{Plan: "wave", VM: "vm-1"}); n != maxAttempts {
		t.Errorf("tried %d times, want %d", n, maxAttempts)
	}
	if v := r.vm("wave", "vm-1"); v.Failure.Kind != fault.Unreachable.String() || v.Attempts != maxAttempts {
		t.Errorf("%+v", v)
	}
}

// untilTriedAndRested moves the clock on while a VM waits for its next attempt.
func (r *rig) untilTriedAndRested(plan, ref string, s fleetdb.State) {
	r.Helper()
	r.wait(ref+" to be "+string(s), func() bool {
		v := r.vm(plan, ref)
		if v.State == fleetdb.Queued && v.Attempts > 0 {
			r.clock.add(time.Minute)
		}
		return v.State == s
	})
}

// Attempts that get further do not count against the VM.
func TestProgressBeginsTheCountAnew(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(1, 1)...)
	tries := 0
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if tries++; tries > 2*maxAttempts {
			return m.transfer(ctx, vm, d)
		}
		back, err := d.RequestSlot(ctx, fleetdb.First, 0)
		if err != nil {
			return err
		}
		defer back()
		d.Progress(fleetdb.Progress{Total: 1 << 30, Done: int64(tries)})
		d.Progress(fleetdb.Progress{Total: 1 << 30, Done: int64(tries + 1)})
		return errAway
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.wait("the end", func() bool {
		v := r.vm("wave", "vm-1")
		if v.State == fleetdb.Queued && v.Attempts > 0 {
			r.clock.add(time.Minute)
		}
		return v.State == fleetdb.Done
	})
}

func TestFailedVMStopsNoOther(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(20, 2)...)
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		switch vm.VM {
		case "vm-3":
			return errBroken
		case "vm-4":
			return errPlain
		case "vm-5": // gone from the source since it was listed
			return fault.New(fault.NotFound, "VM %s is not there", vm.Name)
		}
		return m.transfer(ctx, vm, d)
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	p := r.waitEnded("wave")
	if p.Counts[fleetdb.Done] != 17 || p.Counts[fleetdb.Failed] != 3 {
		t.Fatalf("ended with %v", p.Counts)
	}
	if v := r.vm("wave", "vm-3"); v.Failure.Kind != "corrupt" || v.Failure.Text != errBroken.Error() {
		t.Errorf("vm-3 says %+v", v.Failure)
	}
	m.move = nil
	r.order("wave", fleetdb.Retry)
	r.waitFor("wave", fleetdb.Done, 20)
	if p := r.waitEnded("wave"); len(m.hooks) != 2 {
		t.Errorf("after a retry: %v, hooks %v", p.Counts, m.hooks)
	}
}

// A password that is wrong: one login is spent, however many VMs wait for it.
func TestRefusedLoginIsTheLastUntilSomebodySaysResume(t *testing.T) {
	r := newRig(t, nil)
	var logins, right atomic.Int32
	worker := func(name string) {
		m, at := newMover(t, vmsOn(60, 4)...), login.NewLimiter(r.db, "vc1:443", "")
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
			return m.transfer(ctx, vm, d)
		}
		r.start(r.config(m, name))
	}
	r.submit("wave")
	worker("w1")
	worker("w2")
	r.wait("the plan to say so", func() bool { f := r.plan("wave").Failure; return f != nil && f.Kind == "denied" })
	r.waitFor("wave", fleetdb.Queued, 60)
	if n := logins.Load(); n != 1 {
		t.Errorf("%d logins were refused", n)
	}
	f := r.plan("wave").Failure
	if want := "login to vc1:443 was refused: " + errDenied.Error(); f.Text != want {
		t.Errorf("the plan says %q, want %q", f.Text, want)
	}
	right.Store(1)
	r.order("wave", fleetdb.GoOn)
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 60 || p.Failure != nil {
		t.Errorf("ended with %v, %v", p.Counts, p.Failure)
	}
	if n := logins.Load(); n != 61 {
		t.Errorf("%d logins, of 61", n)
	}
}

func TestRefusedListingIsNotTriedAgainByItself(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(2, 1)...)
	var logins atomic.Int32
	var right atomic.Bool
	at := login.NewLimiter(r.db, "vc1:443", "")
	m.list = func(ctx context.Context, _ fleetdb.Plan, tell func([]fleetdb.VM) error) error {
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
		return tell(m.vms)
	}
	r.submit("wave")
	n := r.start(r.config(m, "w1"))
	shown := func() bool { f := r.plan("wave").Failure; return f != nil && f.Kind == "denied" }
	r.wait("the plan to say so", shown)
	r.clock.add(10 * time.Minute)
	n.end()
	r.start(r.config(m, "w1")) // the next scheduler knows, too
	r.wait("the plan to say so", shown)
	if n := logins.Load(); n != 1 {
		t.Errorf("%d logins were refused", n)
	}
	right.Store(true)
	r.order("wave", fleetdb.GoOn)
	r.wait("the end", func() bool { r.clock.add(time.Second); return r.plan("wave").State.IsFinal() })
}

// A host that refuses its own account, by SSH: VMs of that host wait, those of others do not.
func TestHostThatRefusesWaitsAlone(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(30, 3)...)
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
		return m.transfer(ctx, vm, d)
	}
	r.submit("wave")
	c := r.config(m, "w1")
	c.TTL = short // the board is written once in a while
	r.start(c)
	r.waitFor("wave", fleetdb.Done, 20)
	r.waitFor("wave", fleetdb.Queued, 10)
	why := "login to host esx1 by SSH was refused"
	r.wait("the board to say so", func() bool {
		b := r.snapshot()
		return len(b.Breakers) == 1 && b.Breakers[0].Object == "host esx1" && len(b.Waiting) == 10 && strings.HasPrefix(b.Waiting[0].Reason, why)
	})
	if n := logins.Load(); n != 1 {
		t.Errorf("%d logins were refused", n)
	}
	right.Store(true)
	r.order("wave", fleetdb.GoOn)
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 30 || p.Failure != nil {
		t.Errorf("ended with %v, %v", p.Counts, p.Failure)
	}
}

// These are the values of package admission.
const (
	failuresInARow = 3
	firstRest      = 30 * time.Second
)

// A host that is away is left alone; the others go on, and it is tried with one VM.
func TestHostThatFailsRestsAlone(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(60, 3)...)
	var away atomic.Bool
	var onESX1 atomic.Int32
	away.Store(true)
	m.caps = map[string]int64{"host:*/vms": 5}
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		d.Step("copy", "")
		if vm.Host == "esx1" && away.Load() {
			onESX1.Add(1)
			return errAway
		}
		return m.transfer(ctx, vm, d)
	}
	r.submit("wave")
	first := r.start(r.config(m, "w1"))
	r.waitFor("wave", fleetdb.Done, 40)
	rests := func() bool {
		records, err := r.db.Records.List(t.Context(), hostHealth)
		return err == nil && len(records) == 1 && strings.Contains(string(records[0].Doc), `"until"`)
	}
	r.wait("esx1 to fail", func() bool {
		return onESX1.Load() >= failuresInARow && r.plan("wave").Counts[fleetdb.Queued] == 20 && rests()
	})
	failed := onESX1.Load()
	if failed > 5+failuresInARow {
		t.Errorf("%d VMs were tried on a host that is away", failed)
	}
	first.end() // the next scheduler leaves it alone, too
	r.start(r.config(m, "w1"))
	r.clock.add(firstPause + time.Second)
	r.submit("wave-2")
	r.waitFor("wave-2", fleetdb.Done, 40)
	if n := onESX1.Load(); n != failed {
		t.Errorf("the next scheduler had %d VMs try it", n-failed)
	}
	r.order("wave-2", fleetdb.Cancel)
	r.waitEnded("wave-2")
	r.clock.add(firstRest + time.Second)
	r.wait("one VM to try it", func() bool { return onESX1.Load() > failed })
	r.waitFor("wave", fleetdb.Queued, 20)
	if n := onESX1.Load() - failed; n != 1 {
		t.Errorf("%d VMs tried the host again", n)
	}
	away.Store(false)
	r.wait("the end", func() bool {
		r.clock.add(time.Minute)
		return r.plan("wave").State.IsFinal()
	})
	if n := r.plan("wave").Counts[fleetdb.Done]; n != 60 {
		t.Errorf("%d of 60 are done", n)
	}
	if left, err := r.db.Records.List(t.Context(), hostHealth); err != nil || len(left) > 0 {
		t.Errorf("on record: %s, %v", left, err)
	}
}

// Each attempt counts the bytes that it read, and the one that publishes the VM counts its result, also if the
// worker ends at once afterwards.
func TestAttemptsAreCounted(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(1, 1)...)
	tries := 0
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if err := d.Storage([]string{"disk-dir:/srv/vm"}); err != nil {
			return err
		}
		d.Progress(fleetdb.Progress{Read: 100})
		d.Progress(fleetdb.Progress{Read: 250})
		if tries++; tries < 2 {
			return errAway
		}
		d.Published(fleetdb.Summary{Outage: time.Minute, Rates: []float64{9}})
		return nil
	}
	r.submit("wave")
	n := r.start(r.config(m, "w1"))
	r.untilTriedAndRested("wave", "vm-1", fleetdb.Done)
	n.end()
	got, err := r.db.Counters.Totals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Read["wave"] != 500 || got.Attempts[fleetdb.AttemptRetried] != 1 || got.Attempts[fleetdb.AttemptDone] != 1 || got.Outages.Sum != 60 || got.Rates.Sum != 9 {
		t.Errorf("totals %+v", got)
	}
}
