package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/targets"
)

const (
	// attempts is how often a VM is tried that fails for passing reasons without getting
	// further, before it counts as failed.
	attempts = 8

	firstPause   = 10 * time.Second // before the second attempt; it doubles
	longestPause = 10 * time.Minute
)

// pauseAfter is how long to wait after so many failures in a row.
func pauseAfter(failures int) time.Duration {
	return min(longestPause, firstPause<<min(max(failures-1, 0), 10))
}

// An attempt drives a VM with one claim.
type attempt struct {
	*drive
	claim roster.Claim
}

// run drives the VM to the end of this attempt and puts on record what became of it. Try
// ends when the attempt is to stop, ctx when nothing may be done any more. It reports
// whether the claim is used up.
func (a *attempt) run(ctx, try context.Context) bool {
	vm, err := a.full(ctx)
	if err != nil {
		return errors.Is(err, roster.ErrFenced) || fault.Is(err, fault.NotFound)
	}
	end, ok := a.outcome(ctx, try, vm)
	if !ok {
		return errors.Is(context.Cause(try), errTaken)
	}
	return a.finish(ctx, end)
}

// full reads the VM with its Spec; ErrFenced if it is another's by now.
func (a *attempt) full(ctx context.Context) (vm roster.VM, err error) {
	err = a.w.insist(ctx, func() (err error) {
		vm, err = a.w.Roster.VMs.Get(ctx, a.claim.Key)
		return err
	})
	if err == nil && (vm.Epoch != a.claim.Epoch || vm.Worker != a.claim.Worker) {
		err = roster.ErrFenced
	}
	return vm, err
}

// outcome drives the VM and says what became of it; false if that is nobody's business any
// more.
func (a *attempt) outcome(ctx, try context.Context, vm roster.VM) (roster.End, bool) {
	if _, order, _ := a.look(); undoes(order) {
		return a.undo(ctx, vm)
	}
	m := a.newDriver(ctx, try, vm)
	err := m.move(vm)
	_, order, _ := a.look()
	switch cause := context.Cause(ctx); {
	case cause != nil && !errors.Is(cause, errLeaving), errors.Is(context.Cause(try), errTaken):
		return roster.End{}, false
	case err == nil:
		return roster.End{State: roster.Done}, true
	case cause != nil:
		return roster.End{State: roster.Queued}, true
	case undoes(order):
		return a.undo(ctx, vm)
	}
	return a.failed(ctx, vm, err, m)
}

// failed says what is next after an attempt that failed with err.
func (a *attempt) failed(ctx context.Context, vm roster.VM, err error, m *driver) (roster.End, bool) {
	end := roster.End{State: roster.Failed, Failure: failureOf(err), Further: m.gained()}
	tries := vm.Attempts + 1
	if end.Further {
		tries = 1
	}
	switch {
	case isRefusal(err): // its next login waits for people
		end.State = roster.Queued
		return end, true
	case errors.Is(err, fault.ErrNoRoom): // no VM's fault
		end.Uncounted, tries = true, 1
	case !passes(err) || tries >= attempts:
		return end, true
	}
	end.State = roster.Queued
	now, nowErr := a.now(ctx)
	end.NotBefore = now.Add(pauseAfter(tries))
	return end, nowErr == nil
}

// now is the database's time.
func (a *attempt) now(ctx context.Context) (now time.Time, err error) {
	err = a.w.insist(ctx, func() (err error) {
		now, err = a.w.Roster.Now(ctx)
		return err
	})
	return now, err
}

// undo gives up what is not published. What fails for a passing reason is tried again here:
// until it is done the VM is neither canceled nor to be begun again.
func (a *attempt) undo(ctx context.Context, vm roster.VM) (roster.End, bool) {
	for tries := 1; ; tries++ {
		err := a.undoOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return roster.End{State: roster.Queued}, errors.Is(context.Cause(ctx), errLeaving)
		case errors.Is(err, roster.ErrFenced):
			return roster.End{}, false
		case err == nil:
			return roster.End{State: roster.Canceled}, true
		case isRefusal(err):
			return roster.End{State: roster.Queued, Failure: failureOf(err)}, true
		case errors.Is(err, fault.ErrNoRoom):
			tries = 1
		case !passes(err) || tries >= attempts:
			return roster.End{State: roster.Failed, Failure: failureOf(fmt.Errorf("%s: %w", a.undoing(), err))}, true
		}
		a.w.Log.Info("undo is tried again", "plan", vm.Plan, "vm", vm.Name, "err", err)
		_ = a.w.Sleep(ctx, pauseAfter(tries)) // the next look at ctx tells
	}
}

// undoing names the order in a failure of it. The VM of a withdrawal that failed may still be published.
func (a *attempt) undoing() string {
	if _, order, _ := a.look(); order == roster.Withdraw {
		return "withdraw the published VM"
	}
	return "undo"
}

// undoOnce does nothing where nothing was begun by now.
func (a *attempt) undoOnce(ctx context.Context) error {
	vm, err := a.full(ctx)
	if err != nil || len(vm.Storage) == 0 {
		return err
	}
	return a.w.Mover.Undo(ctx, vm)
}

// finish puts the end of the attempt on record. It is still to be written when the worker
// leaves.
func (a *attempt) finish(ctx context.Context, end roster.End) bool {
	if ctx.Err() != nil {
		last, stop := parting(ctx)
		defer stop()
		ctx = last
	}
	err := a.w.insist(ctx, func() error { return a.w.Roster.Claims.Finish(ctx, a.claim, end) })
	switch {
	case err == nil:
		a.w.Log.Info("vm "+string(end.State), "plan", a.claim.Plan, "vm", a.claim.VM, "err", failureText(end.Failure))
	case errors.Is(err, roster.ErrFenced):
		a.w.Log.Info("vm was taken over", "plan", a.claim.Plan, "vm", a.claim.VM)
	default:
		a.w.Log.Warn("the end of an attempt is not on record", "plan", a.claim.Plan, "vm", a.claim.VM, "err", err)
		return false
	}
	return true
}

func failureOf(err error) *roster.Failure {
	f := plan.FailureOf(err)
	return &roster.Failure{Kind: f.Kind, Text: f.Text, Hint: f.Hint, Ours: errors.Is(err, targets.ErrHeld) || errors.Is(err, fault.ErrNoRoom)}
}

func failureText(f *roster.Failure) string {
	if f == nil {
		return ""
	}
	return f.Text
}
