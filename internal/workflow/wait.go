package workflow

import (
	"context"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Wait returns after the end of the run's current attempt, with its error; no step of it is running any
// more. For a run of another executor it returns the recorded result, within about a second after its
// end. It returns fault.Canceled if ctx or the engine ends first; the run stays pending. It returns
// fault.Conflict if another executor took over a run of this process.
func (e *Engine) Wait(ctx context.Context, run string) error {
	var drove *attempt
	for {
		st, err := e.record.readCurrent(ctx, run)
		if err != nil {
			return err
		}
		a, unwinding := e.attempts.latestOf(run), e.unwinding(st)
		switch ours := a != nil && (a == drove || !a.isOver()); {
		case ours && !e.record.isOwn(st) && a.number < st.Attempt:
			return e.endTakenOver(ctx, a, st)
		case st.State != Pending && unwinding != nil: // the executor that canceled it may begin the next attempt meanwhile
			drove, err = unwinding, waitEnded(ctx, unwinding)
		case st.State != Pending:
			return e.runOutcome(st)
		case e.record.isOwn(st):
			drove, err = e.waitLocal(ctx, st)
		default:
			err = e.watcher.waitRemote(ctx, st)
		}
		if err != nil {
			return err
		}
	}
}

// waitLocal waits until the attempt has ended in this process and its end is recorded.
func (e *Engine) waitLocal(ctx context.Context, st Status) (*attempt, error) {
	a := e.attempts.getOrAdd(attemptID(st.Run, st.Attempt))
	select {
	case <-a.ended:
		return a, e.waitRecorded(ctx, a, st)
	case <-e.record.root.Done():
		return a, errClosed()
	case <-ctx.Done():
		return a, fault.New(fault.Canceled, "wait for run %s: %w", st.Run, ctx.Err())
	}
}

// errSilent is the cause if the engine recorded no outcome and returned no error.
var errSilent = errors.New("the engine recorded no outcome and returned no error")

const (
	// recordPause is the first pause between reads; the engine records an outcome after its body has returned
	recordPause   = 5 * time.Millisecond
	recordPauses  = time.Second // maximum pause
	recordTimeout = time.Minute // limit of waitRecorded; the engine tries again after half of that

	localRecordTimeout = 15 * time.Second // limit with SQLite, for which the engine does not try again
)

// waitRecorded returns when the outcome of a body that has returned is recorded. If that takes longer
// than recordTimeout, the attempt ends unrecorded.
func (e *Engine) waitRecorded(ctx context.Context, a *attempt, st Status) error {
	for waited, next := time.Duration(0), recordPause; waited < e.recordTimeout; next = min(2*next, recordPauses) {
		if err := a.unrecordedError(); err != nil {
			return err
		}
		select {
		case <-time.After(next):
			waited += next
		case <-e.record.root.Done():
			return errClosed()
		case <-ctx.Done():
			return fault.Wrap(fault.Canceled, ctx.Err())
		}
		if now, err := e.record.readCurrent(ctx, st.Run); err != nil || now.State != Pending || now.Attempt != st.Attempt {
			return err
		}
	}
	return e.markUnrecorded(a, errSilent)
}

// markUnrecorded marks the outcome of a as unrecorded, and returns the error for those who wait for it.
func (e *Engine) markUnrecorded(a *attempt, cause error) error {
	return a.markUnrecorded(newUnrecordedError(e.cfg.Dir, "record how run "+a.run+" ended", cause))
}

// endUnrecorded marks the outcome of the attempt with that engine id as unrecorded, unless a later attempt began.
func (e *Engine) endUnrecorded(id string, cause error) {
	run, number := splitAttempt(id)
	if a := e.attempts.latestOf(run); a != nil && a.number == number {
		_ = e.markUnrecorded(a, cause) // those who wait get the error
	}
}

// endTakenOver ends the local work on a run that another executor took over, and returns
// fault.Conflict.
func (e *Engine) endTakenOver(ctx context.Context, a *attempt, st Status) error {
	a.stop()
	if err := waitEnded(ctx, a); err != nil {
		return err
	}
	return takenOver(st.Run, st.Executor)
}

// unwinding returns the attempt of st if its body is still running in this process; nil if not. The body of a
// canceled attempt that was not entered yet finds the cancellation before its first step.
func (e *Engine) unwinding(st Status) *attempt {
	a := e.attempts.latestOf(st.Run)
	if a == nil || a.number != st.Attempt || a.phase.Load() != phaseBegun || a.isOver() {
		return nil
	}
	return a
}

// waitUnwound waits until the body of a canceled attempt has returned.
func (e *Engine) waitUnwound(ctx context.Context, st Status) error {
	if a := e.unwinding(st); a != nil {
		return waitEnded(ctx, a)
	}
	return nil
}

// waitEnded waits until a has ended in this process. It returns fault.Canceled if ctx ends first.
func waitEnded(ctx context.Context, a *attempt) error {
	select {
	case <-a.ended:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Canceled, "wait for run %s: %w", a.run, ctx.Err())
	}
}

// runOutcome returns the result of a run that has ended. It prefers the original error to the recorded
// one.
func (e *Engine) runOutcome(st Status) error {
	switch st.State {
	case Done:
		return nil
	case None:
		return fault.New(fault.NotFound, "run %s does not exist", st.Run)
	}
	if a := e.attempts.latestOf(st.Run); a != nil && a.number == st.Attempt {
		if err, ok := a.localOutcome(); ok && err != nil {
			return err
		}
	}
	return st.Err
}

// takenOver returns the fault.Conflict for a caller whose run another executor has taken over.
func takenOver(run, by string) error {
	return fault.New(fault.Conflict, "run %s was taken over by %s", run, by).
		WithHint("it continues there: check that process")
}
