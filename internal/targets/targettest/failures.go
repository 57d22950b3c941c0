package targettest

import (
	"context"
	"fmt"
	"sync"
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
// slow lane loses each call and each answer; otherwise call or answer, by turns.
func callsFail(t *testing.T, h Harness) {
	outcomes := []Outcome{Unanswered, Lost}
	for i := range outcomes {
		if i > 0 && !lane.Slow {
			break
		}
		eachCall(t, h, 1, false, func(t *testing.T, site Site, d platform.Delivery, n, nth int) {
			outcome := outcomes[(nth+i)%len(outcomes)]
			before := site.Objects(t)
			site.SetCallHook(func(call int) Outcome {
				if call == n {
					return outcome
				}
				return Pass
			})
			_, err := site.Platform.Deliver(t.Context(), d)
			site.SetCallHook(nil)
			if err != nil {
				hasRemedy(t, fmt.Sprintf("call %d with outcome %d", n, outcome), err, fault.Transient, fault.Unreachable)
				assertUnchanged(t, site, before, fmt.Sprintf("a Deliver whose call %d had outcome %d", n, outcome))
			}
			mustDeliver(t, site, d)
		})
	}
}

// callsAreCanceled cancels the context of Deliver during one of its calls. Deliver must succeed, or leave
// nothing.
func callsAreCanceled(t *testing.T, h Harness) {
	eachCall(t, h, 2, false, func(t *testing.T, site Site, d platform.Delivery, n, _ int) {
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
// complete the VM, and Withdraw must remove everything. A VM that already has all its disks must be
// complete. After every second kill, in the slow lane after each, Withdraw must also remove what the killed
// process left.
func survivesDeath(t *testing.T, h Harness) {
	eachCall(t, h, 1, true, func(t *testing.T, site Site, d platform.Delivery, n, nth int) {
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
		kill := func() {
			site.SetCallHook(cut)
			_, _ = site.Platform.Deliver(t.Context(), d) // a killed process returns nothing
			site.SetCallHook(nil)
		}
		kill()
		for _, s := range site.VMs(t) {
			if len(s.Disks) == len(d.VM.Disks) { // a VM that looks complete must be complete
				compareVM(t, s, d.VM)
			}
		}
		mustDeliver(t, site, d)
		mustWithdraw(t, site, d.VM)
		assertUnchanged(t, site, before, "Withdraw")
		if nth%2 != 0 && !lane.Slow {
			return
		}
		d = stageVM(t, d.VM, targets.Raw)
		kill()
		mustWithdraw(t, site, d.VM)
		assertUnchanged(t, site, before, fmt.Sprintf("Withdraw after a kill at call %d", n))
	})
}

// eachCall runs try in a subtest with a new site for calls that a delivery makes: in the slow lane for each.
// Otherwise for every step-th of those that change something, and for every fourth of the others: they leave
// the platform as it is. If afterChanges is set, the last call before a change counts as a change: then all
// effects of earlier calls are complete. n counts calls from 1; nth counts the subtests of either kind from 0.
// It is skipped in short mode, because the number of deliveries is that of the calls.
func eachCall(t *testing.T, h Harness, step int, afterChanges bool, try func(t *testing.T, site Site, d platform.Delivery, n, nth int)) {
	if testing.Short() {
		t.Skip("delivers once for each call")
	}
	steps := map[bool]int{false: step, true: 4}
	if lane.Slow {
		steps = map[bool]int{false: 1, true: 1}
	}
	seen := map[bool]int{}
	calls := listCalls(t, h)
	for i, reads := range calls {
		if afterChanges && i+1 < len(calls) && !calls[i+1] {
			reads = false
		}
		at := seen[reads]
		if seen[reads]++; at%steps[reads] != 0 {
			continue
		}
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			h.runParallel(t)
			try(t, h.New(t), stageVM(t, newVM(), targets.Raw), i+1, at/steps[reads])
		})
	}
}

// listCalls returns the calls of one delivery, by whether they only read; nil if the site has no CallHook.
func listCalls(t *testing.T, h Harness) (reads []bool) {
	t.Run("count", func(t *testing.T) {
		site := h.New(t)
		if site.SetCallHook == nil {
			return
		}
		calls := 0
		var mu sync.Mutex
		site.SetCallHook(func(n int) Outcome {
			mu.Lock()
			defer mu.Unlock()
			calls = max(calls, n)
			return Pass
		})
		mustDeliver(t, site, stageVM(t, newVM(), targets.Raw))
		for n := range calls {
			reads = append(reads, site.Reads(n+1))
		}
		site.SetCallHook(nil)
		if calls == 0 {
			t.Error("Deliver makes no call: is the hook installed correctly?")
		}
	})
	return reads
}
