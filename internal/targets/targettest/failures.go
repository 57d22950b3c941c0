package targettest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

func refusesCredentials(t *testing.T, h Harness) {
	if h.Denied == nil {
		return
	}
	refuses(t, h.Denied(t), fault.Denied)
}

func nobodyAnswers(t *testing.T, h Harness) {
	if h.Unreachable == nil {
		return
	}
	refuses(t, h.Unreachable(t), fault.Unreachable, fault.Transient)
}

// refuses: each method ends with the same kind of error.
func refuses(t *testing.T, p platform.Place, kinds ...fault.Kind) {
	d := staging(t, newVM(), targets.Raw)
	hasRemedy(t, "Check", p.Check(t.Context(), d.VM), kinds...)
	_, err := p.Deliver(t.Context(), d)
	hasRemedy(t, "Deliver", err, kinds...)
	hasRemedy(t, "Withdraw", p.Withdraw(t.Context(), d.VM), kinds...)
}

// callsFail: one call is lost, or its answer is. A place that does not get over it leaves nothing.
func callsFail(t *testing.T, h Harness) {
	for _, fate := range []Fate{Lost, Unanswered} {
		eachCall(t, h, func(t *testing.T, site Site, d platform.Delivery, n int) {
			before := site.Things(t)
			site.Tap(func(call int) Fate {
				if call == n {
					return fate
				}
				return Pass
			})
			_, err := site.Place.Deliver(t.Context(), d)
			site.Tap(nil)
			if err != nil {
				hasRemedy(t, fmt.Sprintf("call %d with fate %d", n, fate), err, fault.Transient, fault.Unreachable)
				unchanged(t, site, before, fmt.Sprintf("a Deliver whose call %d had fate %d", n, fate))
			}
			deliver(t, site, d)
		})
	}
}

// callsAreCanceled: somebody asks to stop while a call is under way.
func callsAreCanceled(t *testing.T, h Harness) {
	eachCall(t, h, func(t *testing.T, site Site, d platform.Delivery, n int) {
		before := site.Things(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		site.Tap(func(call int) Fate {
			if call == n {
				cancel()
			}
			return Pass
		})
		_, err := site.Place.Deliver(ctx, d)
		site.Tap(nil)
		if err != nil {
			if !fault.Is(err, fault.Canceled) {
				t.Errorf("canceled at call %d: %v (%v)", n, err, fault.KindOf(err))
			}
			unchanged(t, site, before, fmt.Sprintf("a Deliver canceled at call %d", n))
		}
		deliver(t, site, d)
	})
}

// dies: after a call nothing more of us arrives, as if we had died. The next delivery completes the
// VM, or Withdraw takes away all there is of it.
func dies(t *testing.T, h Harness) {
	eachCall(t, h, func(t *testing.T, site Site, d platform.Delivery, n int) {
		before := site.Things(t)
		cut := func(call int) Fate {
			switch {
			case call < n:
				return Pass
			case call == n:
				return Unanswered
			}
			return Lost
		}
		die := func() {
			site.Tap(cut)
			_, _ = site.Place.Deliver(t.Context(), d) // nobody hears of its end
			site.Tap(nil)
		}
		die()
		for _, s := range site.Seen(t) {
			if len(s.Disks) == len(d.VM.Disks) { // it looks whole, so it has to be
				compare(t, s, d.VM)
			}
		}
		deliver(t, site, d)
		withdraw(t, site, d.VM)
		unchanged(t, site, before, "Withdraw")
		d = staging(t, d.VM, targets.Raw)
		die()
		withdraw(t, site, d.VM)
		unchanged(t, site, before, fmt.Sprintf("Withdraw after death at call %d", n))
	})
}

// eachCall has try at a fresh place for each call that a delivery makes.
func eachCall(t *testing.T, h Harness, try func(t *testing.T, site Site, d platform.Delivery, n int)) {
	if testing.Short() {
		t.Skip("delivers once for each call")
	}
	for n := range countCalls(t, h) {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) { h.beside(t); try(t, h.New(t), staging(t, newVM(), targets.Raw), n+1) })
	}
}

// countCalls counts those of one delivery; none where a place has no calls.
func countCalls(t *testing.T, h Harness) int {
	var calls atomic.Int64
	t.Run("count", func(t *testing.T) {
		site := h.New(t)
		if site.Tap == nil {
			return
		}
		site.Tap(func(n int) Fate { calls.Store(int64(n)); return Pass })
		deliver(t, site, staging(t, newVM(), targets.Raw))
		site.Tap(nil)
		if calls.Load() == 0 {
			t.Error("a delivery without a call: is the tap at the right place?")
		}
	})
	return int(calls.Load())
}
