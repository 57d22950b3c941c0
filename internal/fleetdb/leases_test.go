package fleetdb

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

func TestALeaseIsOnesUntilItIsOver(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		clock := newClock()
		p.now = clock.Now
		ctx, one, two := t.Context(), p.open(), p.open()
		before := time.Now()
		a := ok(one.Leases.Acquire(ctx, "scheduler", "a", aMinute))(t)
		if a.ValidUntil.Before(before.Add(aMinute)) || a.ValidUntil.After(time.Now().Add(aMinute)) {
			t.Errorf("sure until %v of %v", a.ValidUntil, before)
		}
		_, err := two.Leases.Acquire(ctx, "scheduler", "b", aMinute)
		if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "scheduler is a's") || fault.HintOf(err) == "" {
			t.Fatalf("another's: %v", err)
		}
		clock.pass(aMinute - time.Second)
		must(t, one.Leases.Renew(ctx, &a, aMinute))
		if again := ok(one.Leases.Acquire(ctx, "scheduler", "a", aMinute))(t); again.Epoch != a.Epoch {
			t.Errorf("one's own: epoch %d, then %d", a.Epoch, again.Epoch)
		}
		clock.pass(aMinute + time.Second)
		must(t, one.Leases.Renew(ctx, &a, aMinute)) // nobody has acted since
		clock.pass(aMinute + time.Second)
		b := ok(two.Leases.Acquire(ctx, "scheduler", "b", aMinute))(t)
		if b.Epoch <= a.Epoch {
			t.Errorf("epoch %d after %d", b.Epoch, a.Epoch)
		}
		if err := one.Leases.Renew(ctx, &a, aMinute); !errors.Is(err, ErrFenced) {
			t.Errorf("renewed what is another's: %v", err)
		}
		must(t, one.Leases.Free(ctx, a)) // of no effect
		if _, err := one.Leases.Acquire(ctx, "scheduler", "a", aMinute); !fault.Is(err, fault.Conflict) {
			t.Errorf("freed another's: %v", err)
		}
		must(t, two.Leases.Free(ctx, b))
		if c := ok(one.Leases.Acquire(ctx, "scheduler", "a", aMinute))(t); c.Epoch <= b.Epoch {
			t.Errorf("epoch %d after %d", c.Epoch, b.Epoch)
		}
	})
}

// Without a clock of the test's: PostgreSQL's, and the machine's.
func TestALeaseRunsByTheDatabasesClock(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		ctx, r := t.Context(), p.open()
		const short = 30 * time.Millisecond
		ok(r.Leases.Acquire(ctx, "scheduler", "a", short))(t)
		for began := time.Now(); ; {
			l, err := r.Leases.Acquire(ctx, "scheduler", "b", aMinute)
			if err == nil {
				if took := time.Since(began); l.Epoch != 2 || took > patient {
					t.Errorf("epoch %d after %v", l.Epoch, took)
				}
				break
			}
			if !fault.Is(err, fault.Conflict) {
				t.Fatal(err)
			}
		}
		if now := ok(r.Now(ctx))(t); time.Since(now).Abs() > patient {
			t.Errorf("the database says %v", now)
		}
	})
}

func TestASecondProcessOfAWorkerTakesItsPlaceAndItsVMs(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 4)
		old := f.run(1, "w1")
		must(t, f.Claims.EndTransfer(ctx, old))
		must(t, f.Claims.RequestTransfer(ctx, old, Again, time.Minute))
		assigned := f.grant(2, "w1")
		other := f.run(3, "w2")
		first := f.workers["w1"]
		second := ok(f.Workers.Join(ctx, Worker{Name: "w1", VMs: 10}, aMinute))(t)
		if second.Epoch <= first.Epoch {
			t.Errorf("epoch %d after %d", second.Epoch, first.Epoch)
		}
		if err := f.Leases.Renew(ctx, &first, aMinute); !errors.Is(err, ErrFenced) {
			t.Errorf("the first one beats on: %v", err)
		}
		for _, c := range []Claim{old, assigned} {
			if err := f.Claims.SetStep(ctx, c, "commit", ""); !errors.Is(err, ErrFenced) {
				t.Errorf("the first one drives on: %v", err)
			}
		}
		if v := f.vm(1); v.State != Assigned || v.Epoch != old.Epoch+1 || v.Granted || v.Requested != NoTransfer {
			t.Errorf("of the first one: %+v", v)
		}
		if v := f.vm(2); v.State != Assigned || v.Epoch != assigned.Epoch+1 || !v.Granted {
			t.Errorf("of the first one, with its slots: %+v", v)
		}
		must(t, f.Claims.Begin(ctx, Claim{key(1), "w1", old.Epoch + 1}, nil))
		if v := f.vm(1); len(v.Storage) != 1 || v.Storage[0] != "id-w1" {
			t.Errorf("its storage is forgotten: %+v", v)
		}
		must(t, f.Claims.SetStep(ctx, other, "copy", "")) // has nothing to do with it
	})
}

func TestWhoIsAliveIsByTheDatabasesClock(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
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
		clock.pass(40 * time.Second)
		w1 := f.workers["w1"]
		must(t, f.Leases.Renew(ctx, &w1, aMinute))
		clock.pass(40 * time.Second)
		if alive() != "w1" {
			t.Errorf("alive are %q, w1 beats", alive())
		}
		must(t, f.Workers.Leave(ctx, w1))
		if alive() != "" {
			t.Errorf("alive are %q, w1 has left", alive())
		}
		must(t, f.Workers.Drain(ctx, "w2", true))
		w := ok(f.Workers.List(ctx))(t)
		if len(w) != 2 || !w[1].Drains || w[1].VMs != 10 || w[1].Offers["/srv/vm"] != "id-w2" || !w[0].Until.IsZero() {
			t.Errorf("workers %+v", w)
		}
		if err := f.Workers.Drain(ctx, "w3", true); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "/v1/workers") {
			t.Errorf("drained nobody: %v", err)
		}
	})
}
