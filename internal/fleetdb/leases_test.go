package fleetdb

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

func TestALeaseHasOneHolderUntilItExpires(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		clock := newClock()
		p.now = clock.Now
		ctx, one, two := t.Context(), p.open(), p.open()
		before := time.Now()
		a := ok(one.Leases.Acquire(ctx, "scheduler", "a", aMinute))(t)
		if a.ValidUntil.Before(before.Add(aMinute)) || a.ValidUntil.After(time.Now().Add(aMinute)) {
			t.Errorf("the lease is valid until %v, want a minute after %v", a.ValidUntil, before)
		}
		_, err := two.Leases.Acquire(ctx, "scheduler", "b", aMinute)
		if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "scheduler is a's") || fault.HintOf(err) == "" {
			t.Fatalf("acquired the lease of another process: %v", err)
		}
		clock.advance(aMinute - time.Second)
		must(t, one.Leases.Renew(ctx, &a, aMinute))
		if again := ok(one.Leases.Acquire(ctx, "scheduler", "a", aMinute))(t); again.Epoch != a.Epoch {
			t.Errorf("acquired again: epoch %d, want %d", again.Epoch, a.Epoch)
		}
		clock.advance(aMinute + time.Second)
		must(t, one.Leases.Renew(ctx, &a, aMinute)) // expired, but not acquired by another process
		clock.advance(aMinute + time.Second)
		b := ok(two.Leases.Acquire(ctx, "scheduler", "b", aMinute))(t)
		if b.Epoch <= a.Epoch {
			t.Errorf("epoch %d, want more than %d", b.Epoch, a.Epoch)
		}
		if err := one.Leases.Renew(ctx, &a, aMinute); !errors.Is(err, ErrFenced) {
			t.Errorf("renewed the lease of another process: %v", err)
		}
		must(t, one.Leases.Free(ctx, a)) // without effect
		if _, err := one.Leases.Acquire(ctx, "scheduler", "a", aMinute); !fault.Is(err, fault.Conflict) {
			t.Errorf("freed the lease of another process: %v", err)
		}
		must(t, two.Leases.Free(ctx, b))
		if c := ok(one.Leases.Acquire(ctx, "scheduler", "a", aMinute))(t); c.Epoch <= b.Epoch {
			t.Errorf("epoch %d, want more than %d", c.Epoch, b.Epoch)
		}
	})
}

// A lease expires by the clock of PostgreSQL, or by that of the machine for SQLite.
func TestALeaseExpiresByTheDatabasesClock(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx, r := t.Context(), p.open()
		const short = 30 * time.Millisecond
		ok(r.Leases.Acquire(ctx, "scheduler", "a", short))(t)
		for began := time.Now(); ; {
			l, err := r.Leases.Acquire(ctx, "scheduler", "b", aMinute)
			if err == nil {
				if took := time.Since(began); l.Epoch != 2 || took > waitTimeout {
					t.Errorf("epoch %d after %v, want 2", l.Epoch, took)
				}
				break
			}
			if !fault.Is(err, fault.Conflict) {
				t.Fatal(err)
			}
		}
		if now := ok(r.Now(ctx))(t); time.Since(now).Abs() > waitTimeout {
			t.Errorf("the time of the database is %v", now)
		}
	})
}

func TestSecondWorkerProcessTakesOverVMs(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 4)
		old := f.runVM(1, "w1")
		must(t, f.Claims.EndTransfer(ctx, old))
		must(t, f.Claims.RequestTransfer(ctx, old, Again, time.Minute))
		assigned := f.grantVM(2, "w1")
		other := f.runVM(3, "w2")
		first := f.workers["w1"]
		second := ok(f.Workers.Join(ctx, Worker{Name: "w1", VMs: 10}, aMinute))(t)
		if second.Epoch <= first.Epoch {
			t.Errorf("epoch %d, want more than %d", second.Epoch, first.Epoch)
		}
		if err := f.Leases.Renew(ctx, &first, aMinute); !errors.Is(err, ErrFenced) {
			t.Errorf("the first process renews its lease: %v", err)
		}
		for _, c := range []Claim{old, assigned} {
			if err := f.Claims.SetStep(ctx, c, "commit", ""); !errors.Is(err, ErrFenced) {
				t.Errorf("the first process still drives %s: %v", c.VM, err)
			}
		}
		if v := f.getVM(1); v.State != Assigned || v.Epoch != old.Epoch+1 || v.Granted || v.Requested != NoTransfer {
			t.Errorf("VM of the first process without slots: %+v", v)
		}
		if v := f.getVM(2); v.State != Assigned || v.Epoch != assigned.Epoch+1 || !v.Granted {
			t.Errorf("VM of the first process with slots: %+v", v)
		}
		must(t, f.Claims.Begin(ctx, Claim{key(1), "w1", old.Epoch + 1}, nil))
		if v := f.getVM(1); len(v.Storage) != 1 || v.Storage[0] != "id-w1" {
			t.Errorf("the VM has lost its storage: %+v", v)
		}
		must(t, f.Claims.SetStep(ctx, other, "copy", "")) // w2 is not affected
	})
}

func TestWorkersAreAliveByTheDatabasesClock(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		clock := newClock()
		p.now = clock.Now
		ctx := t.Context()
		f := newFleet(t, p.open(), 1)
		alive := func() (names string) {
			for _, w := range ok(f.Workers.List(ctx))(t) {
				if w.Alive {
					names += w.Name
				}
			}
			return names
		}
		clock.advance(40 * time.Second)
		w1 := f.workers["w1"]
		must(t, f.Leases.Renew(ctx, &w1, aMinute))
		clock.advance(40 * time.Second)
		if alive() != "w1" {
			t.Errorf("alive workers are %q, want w1", alive())
		}
		must(t, f.Workers.Leave(ctx, w1))
		if alive() != "" {
			t.Errorf("alive workers are %q, want none", alive())
		}
		must(t, f.Workers.Drain(ctx, "w2", true))
		w := ok(f.Workers.List(ctx))(t)
		if len(w) != 2 || !w[1].Drains || w[1].VMs != 10 || w[1].Offers["/srv/vm"] != "id-w2" || !w[0].Until.IsZero() {
			t.Errorf("workers %+v", w)
		}
		if err := f.Workers.Drain(ctx, "w3", true); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "/v1/workers") {
			t.Errorf("drained a worker that does not exist: %v", err)
		}
	})
}
