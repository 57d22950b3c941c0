package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/targets"
)

const (
	// maxAttempts is how often a VM may fail for passing reasons without progress before it counts as
	// failed.
	maxAttempts = 8

	firstPause   = 10 * time.Second // pause before the second attempt; each further pause is twice as long
	longestPause = 10 * time.Minute // limit of the pause between two attempts
)

// pauseAfter returns the pause after that many consecutive failures.
func pauseAfter(failures int) time.Duration {
	return min(longestPause, firstPause<<min(max(failures-1, 0), 10))
}

// An attempt executes a VM with one claim.
type attempt struct {
	*assignment
	claim fleetdb.Claim // right to write about the VM; later claims invalidate it
	log   *slog.Logger  // log with the names of the VM; run sets it
}

// run executes the VM to the end of this attempt and records the result. try ends when the attempt must
// stop, ctx when nothing may be done any more. It reports whether the claim has ended.
func (a *attempt) run(ctx, try context.Context) bool {
	vm, err := a.readVM(ctx)
	if err != nil {
		return errors.Is(err, fleetdb.ErrFenced) || fault.Is(err, fault.NotFound)
	}
	a.log = a.w.vmLog(vm)
	a.log.Info("attempt begins", "epoch", vm.Epoch)
	end, ok := a.moveOrUndo(ctx, try, vm)
	if !ok {
		return errors.Is(context.Cause(try), errTaken)
	}
	return a.finishClaim(ctx, end)
}

// readVM returns the VM with its Spec. It returns ErrFenced if another worker has the VM.
func (a *attempt) readVM(ctx context.Context) (vm fleetdb.VM, err error) {
	err = a.w.retryWhileAway(ctx, func() (err error) {
		vm, err = a.w.Database.VMs.Get(ctx, a.claim.Key)
		return err
	})
	if err == nil && (vm.Epoch != a.claim.Epoch || vm.Worker != a.claim.Worker) {
		err = fleetdb.ErrFenced
	}
	return vm, err
}

// moveOrUndo migrates or undoes the VM and returns the result. It returns false if the claim is lost,
// so that the result does not count.
func (a *attempt) moveOrUndo(ctx, try context.Context, vm fleetdb.VM) (fleetdb.End, bool) {
	if _, order, _ := a.currentState(); order.Undoes() {
		return a.undoVM(ctx, vm)
	}
	d := a.newDriver(ctx, try, vm)
	err := d.moveVM(vm)
	_, order, _ := a.currentState()
	switch cause := context.Cause(ctx); {
	case cause != nil && !errors.Is(cause, errLeaving), errors.Is(context.Cause(try), errTaken):
		return fleetdb.End{}, false
	case err == nil:
		return fleetdb.End{State: fleetdb.Done, Summary: d.publishedSummary()}, true
	case cause != nil:
		return fleetdb.End{State: fleetdb.Queued}, true
	case order.Undoes():
		return a.undoVM(ctx, vm)
	}
	return a.failureEnd(ctx, vm, err, d.hasProgressed())
}

// failureEnd returns the result of an attempt that failed with err: queued again after a pause, or
// failed. gained reports that the attempt made progress, so that earlier failures do not count.
func (a *attempt) failureEnd(ctx context.Context, vm fleetdb.VM, err error, gained bool) (fleetdb.End, bool) {
	end := fleetdb.End{State: fleetdb.Failed, Failure: failureOf(err), Further: gained}
	tries := vm.Attempts + 1
	if end.Further {
		tries = 1
	}
	switch {
	case login.IsRefusal(err): // its next login waits for an operator
		end.State = fleetdb.Queued
		return end, true
	case errors.Is(err, fault.ErrNoRoom): // no VM's fault
		end.Uncounted, tries = true, 1
	case !isTransient(err) || tries >= maxAttempts:
		return end, true
	}
	end.State = fleetdb.Queued
	now, nowErr := a.databaseNow(ctx)
	end.NotBefore = now.Add(pauseAfter(tries))
	return end, nowErr == nil
}

// databaseNow returns the time by the database's clock. It retries while the database is away.
func (a *attempt) databaseNow(ctx context.Context) (now time.Time, err error) {
	err = a.w.retryWhileAway(ctx, func() (err error) {
		now, err = a.w.Database.Now(ctx)
		return err
	})
	return now, err
}

// undoVM removes unpublished results. Temporary failures are retried here: until the undo is complete,
// the VM is neither canceled nor started again. It returns false if the claim is lost.
func (a *attempt) undoVM(ctx context.Context, vm fleetdb.VM) (fleetdb.End, bool) {
	for tries := 1; ; tries++ {
		err := a.undoOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return fleetdb.End{State: fleetdb.Queued}, errors.Is(context.Cause(ctx), errLeaving)
		case errors.Is(err, fleetdb.ErrFenced):
			return fleetdb.End{}, false
		case err == nil:
			return fleetdb.End{State: fleetdb.Canceled}, true
		case login.IsRefusal(err):
			return fleetdb.End{State: fleetdb.Queued, Failure: failureOf(err)}, true
		case errors.Is(err, fault.ErrNoRoom):
			tries = 1
		case !isTransient(err) || tries >= maxAttempts:
			return fleetdb.End{State: fleetdb.Failed, Failure: failureOf(fmt.Errorf("%s: %w", a.undoVerb(), err))}, true
		}
		a.log.Info("undo failed, retrying", "err", err)
		_ = a.w.Sleep(ctx, pauseAfter(tries)) // the next check of ctx ends the loop
	}
}

// undoVerb describes the command in the text of a failure. After a failed withdrawal the VM may still
// be published.
func (a *attempt) undoVerb() string {
	if _, order, _ := a.currentState(); order == fleetdb.Withdraw {
		return "withdraw the published VM"
	}
	return "undo"
}

// undoOnce undoes the VM once. If no image was written, there is nothing to undo.
func (a *attempt) undoOnce(ctx context.Context) error {
	vm, err := a.readVM(ctx)
	if err != nil || len(vm.Storage) == 0 {
		return err
	}
	return a.w.Mover.Undo(ctx, vm)
}

// finishClaim records the end of the attempt, also while the worker leaves. It reports whether the
// claim has ended.
func (a *attempt) finishClaim(ctx context.Context, end fleetdb.End) bool {
	if ctx.Err() != nil {
		last, stop := lastWritesContext(ctx)
		defer stop()
		ctx = last
	}
	err := a.w.retryWhileAway(ctx, func() error { return a.w.Database.Claims.Finish(ctx, a.claim, end) })
	switch {
	case err == nil:
		a.log.Info("vm "+string(end.State), "err", failureText(end.Failure))
	case errors.Is(err, fleetdb.ErrFenced):
		a.log.Info("vm was taken over")
	default:
		a.log.Warn("end of an attempt not recorded", "err", err)
		return false
	}
	return true
}

// failureOf returns err as the failure of a VM or a plan. A lack of room and an image lock of another
// process are Ours: they do not count against the host.
func failureOf(err error) *fleetdb.Failure {
	f := journal.FailureOf(err)
	return &fleetdb.Failure{Kind: f.Kind, Text: f.Text, Hint: f.Hint, Local: errors.Is(err, targets.ErrLocked) || errors.Is(err, fault.ErrNoRoom)}
}

// failureText returns the text of f; "" for nil.
func failureText(f *fleetdb.Failure) string {
	if f == nil {
		return ""
	}
	return f.Text
}
