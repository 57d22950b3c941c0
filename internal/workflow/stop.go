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

// haltWait is how long Halt waits for the record, before it ends the step all the same and after
// that: a part of what a worker whose lease is over has to stop in.
const haltWait = 500 * time.Millisecond

// Halt ends the work of this process on a run, whether or not the record is reachable, and returns the
// result once its step has returned: nil if it was done before, fault.Canceled if its result cannot be
// recorded at once. The work of another executor continues. The cancellation is recorded if that is
// possible at once.
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

// waitHalted returns how an attempt ended that does nothing any more. While the record is out of reach
// it does not end: who is cut off from it must not keep the images from those who are not.
func (e *Engine) waitHalted(a *attempt) error {
	select {
	case <-a.ended:
		return a.err
	case <-e.record.root.Done():
		return errClosed()
	case <-time.After(haltWait):
		return fault.New(fault.Canceled, "run %s was stopped, and that is not on record", a.run)
	}
}

func (e *Engine) recordHalt(a *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), haltWait)
	defer cancel()
	if err := e.record.cancelAttempt(ctx, a.run, a.number); err != nil {
		e.cfg.Log.Info("a run is stopped without its record", "run", a.run, "err", err)
	}
}

// Forget removes every record of a run that is over, so that its id starts afresh.
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
