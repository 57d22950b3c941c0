package targettest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/test/lane"
)

// refusesCredentials verifies that rejected credentials are fault.Denied.
func refusesCredentials(t *testing.T, h Harness) {
	if h.Denied == nil {
		return
	}
	assertRefuses(t, h.Denied(t), fault.Denied)
}

// isUnreachable verifies that a platform that does not answer is fault.Unreachable or fault.Transient.
func isUnreachable(t *testing.T, h Harness) {
	if h.Unreachable == nil {
		return
	}
	assertRefuses(t, h.Unreachable(t), fault.Unreachable, fault.Transient)
}

// assertRefuses verifies that Check, Deliver and Withdraw fail with one of the kinds, and with a
// remedy.
func assertRefuses(t *testing.T, p platform.Platform, kinds ...fault.Kind) {
	d := stageVM(t, newVM(), targets.Raw)
	hasRemedy(t, "Check", p.Check(t.Context(), d.VM), kinds...)
	_, err := p.Deliver(t.Context(), d)
	hasRemedy(t, "Deliver", err, kinds...)
	hasRemedy(t, "Withdraw", p.Withdraw(t.Context(), d.VM), kinds...)
}

// callsFail loses one call, or its answer, in each delivery. Deliver must succeed, or leave nothing. The
// slow lane loses each call and each answer; otherwise every second call or its answer, by turns.
func callsFail(t *testing.T, h Harness) {
	fates, step := []Outcome{Lost, Unanswered}, 2
	if lane.Slow {
		step = 1
	}
	for i := range fates {
		if i > 0 && !lane.Slow {
			break
		}
		eachCall(t, h, step, func(t *testing.T, site Site, d platform.Delivery, n int) {
			fate := fates[(n/step+i)%len(fates)]
			before := site.Objects(t)
			site.SetCallHook(func(call int) Outcome {
				if call == n {
					return fate
				}
				return Pass
			})
			_, err := site.Platform.Deliver(t.Context(), d)
			site.SetCallHook(nil)
			if err != nil {
				hasRemedy(t, fmt.Sprintf("call %d with fate %d", n, fate), err, fault.Transient, fault.Unreachable)
				assertUnchanged(t, site, before, fmt.Sprintf("a Deliver whose call %d had fate %d", n, fate))
			}
			mustDeliver(t, site, d)
		})
	}
}

// callsAreCanceled cancels the context of Deliver during one of its calls: every third one, in the slow
// lane each. Deliver must succeed, or leave nothing.
func callsAreCanceled(t *testing.T, h Harness) {
	step := 3
	if lane.Slow {
		step = 1
	}
	eachCall(t, h, step, func(t *testing.T, site Site, d platform.Delivery, n int) {
		before := site.Objects(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		site.SetCallHook(func(call int) Outcome {
			if call == n {
				cancel()
			}
			return Pass
		})
		_, err := site.Platform.Deliver(ctx, d)
		site.SetCallHook(nil)
		if err != nil {
			if !fault.Is(err, fault.Canceled) {
				t.Errorf("canceled at call %d: %v (%v)", n, err, fault.KindOf(err))
			}
			assertUnchanged(t, site, before, fmt.Sprintf("a Deliver canceled at call %d", n))
		}
		mustDeliver(t, site, d)
	})
}

// survivesDeath loses all calls after the n-th, as a killed process would. The next Deliver must
// complete the VM,
// and Withdraw must remove everything. A VM that already has all its disks must be complete. After every
// third call, in the slow lane after each, Withdraw must also remove what the killed process left.
func survivesDeath(t *testing.T, h Harness) {
	eachCall(t, h, 1, func(t *testing.T, site Site, d platform.Delivery, n int) {
		before := site.Objects(t)
		cut := func(call int) Outcome {
			switch {
			case call < n:
				return Pass
			case call == n:
				return Unanswered
			}
			return Lost
		}
		die := func() {
			site.SetCallHook(cut)
			_, _ = site.Platform.Deliver(t.Context(), d) // a killed process returns nothing
			site.SetCallHook(nil)
		}
		die()
		for _, s := range site.VMs(t) {
			if len(s.Disks) == len(d.VM.Disks) { // a VM that looks complete must be complete
				compareVM(t, s, d.VM)
			}
		}
		mustDeliver(t, site, d)
		mustWithdraw(t, site, d.VM)
		assertUnchanged(t, site, before, "Withdraw")
		if n%3 != 0 && !lane.Slow {
			return
		}
		d = stageVM(t, d.VM, targets.Raw)
		die()
		mustWithdraw(t, site, d.VM)
		assertUnchanged(t, site, before, fmt.Sprintf("Withdraw after death at call %d", n))
	})
}

// eachCall runs try in a subtest with a new site for every step-th call that a delivery makes. n counts from
// 1. It is skipped in short mode, because the number of deliveries is that of the calls.
func eachCall(t *testing.T, h Harness, step int, try func(t *testing.T, site Site, d platform.Delivery, n int)) {
	if testing.Short() {
		t.Skip("delivers once for each call")
	}
	calls := countCalls(t, h)
	for n := 1; n <= calls; n += step {
		t.Run(fmt.Sprint(n), func(t *testing.T) { h.runParallel(t); try(t, h.New(t), stageVM(t, newVM(), targets.Raw), n) })
	}
}

// countCalls returns the number of calls of one delivery, or 0 if the site has no CallHook.
func countCalls(t *testing.T, h Harness) int {
	var calls atomic.Int64
	t.Run("count", func(t *testing.T) {
		site := h.New(t)
		if site.SetCallHook == nil {
			return
		}
		site.SetCallHook(func(n int) Outcome { calls.Store(int64(n)); return Pass })
		mustDeliver(t, site, stageVM(t, newVM(), targets.Raw))
		site.SetCallHook(nil)
		if calls.Load() == 0 {
			t.Error("a delivery without a call: is the tap at the right place?")
		}
	})
	return int(calls.Load())
}
