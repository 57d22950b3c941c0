package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// Cancel records that the run must stop, then ends the context of its current step. Wait returns when
// it has stopped; another executor needs about a second to notice. Canceling a completed run does
// nothing.
func (e *Engine) Cancel(ctx context.Context, run string) error {
	st, err := e.record.readCurrent(ctx, run)
	if err != nil || st.State != Pending {
		return err
	}
	if err := e.record.cancelAttempt(ctx, run, st.Attempt); err != nil {
		return fmt.Errorf("cancel run %s: %w", run, toFault(e.cfg.Dir, err))
	}
	if e.record.isOwn(st) {
		e.attempts.getOrAdd(attemptID(run, st.Attempt)).stop()
	}
	return nil
}

// haltWait is the time limit of Halt for the record, before and after it ends the step: a part of the
// time in which a worker with an expired lease must stop.
const haltWait = 500 * time.Millisecond

// Halt ends the work of this process on a run, whether or not the record is reachable. It returns the
// result of the attempt when its step has returned: nil if it was done before, fault.Canceled if its
// result cannot be recorded at once. The work of another executor continues. The cancellation is
// recorded if that is possible at once.
func (e *Engine) Halt(run string) error {
	a := e.attempts.latestOf(run)
	if a == nil {
		return fault.New(fault.Canceled, "run %s is not driven here", run)
	}
	if !a.isOver() {
		e.recordHalt(a)
		a.stop()
	}
	select {
	case <-a.ended:
		return a.err
	case <-a.stepDone():
		return e.waitHalted(a)
	case <-e.record.root.Done():
		return errClosed()
	}
}

// waitHalted returns the result of an attempt without a running step. While the record is unreachable
// the attempt does not end: waitHalted then returns fault.Canceled after haltWait, so that this process
// releases the images.
func (e *Engine) waitHalted(a *attempt) error {
	select {
	case <-a.ended:
		return a.err
	case <-e.record.root.Done():
		return errClosed()
	case <-time.After(haltWait):
		return fault.New(fault.Canceled, "run %s was stopped, but its end is not recorded", a.run)
	}
}

// recordHalt records the cancellation of an attempt, if that is possible within haltWait.
func (e *Engine) recordHalt(a *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), haltWait)
	defer cancel()
	if err := e.record.cancelAttempt(ctx, a.run, a.number); err != nil {
		e.cfg.Log.Info("a run is stopped without its record", "run", a.run, "err", err)
	}
}

// Forget removes all records of a run that has ended, so that its id can be used again. A pending run
// is fault.Conflict.
func (e *Engine) Forget(ctx context.Context, run string) error {
	st, err := e.record.readCurrent(ctx, run)
	if err != nil || st.State == None {
		return err
	}
	if st.State == Pending {
		return fault.New(fault.Conflict, "forget run %s: it is pending", run)
	}
	var ids []string
	for n := 1; n <= st.Attempt; n++ {
		ids = append(ids, attemptID(run, n))
	}
	err = errors.Join(e.waitUnwound(ctx, st), dbos.DeleteWorkflows(e.record.clientFor(ctx), ids))
	e.attempts.forget(run)
	return toFault(e.cfg.Dir, err)
}
