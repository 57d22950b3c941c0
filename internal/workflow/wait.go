package workflow

import (
	"context"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Wait returns after the end of the run's current attempt, with its error; no step of it is running any
// more. For a run at another executor it returns the recorded result, within about a second.
//
// It returns a fault.Canceled if ctx or the engine ends first; the run stays pending. It returns a
// fault.Conflict if another executor took over a run of this process.
func (e *Engine) Wait(ctx context.Context, run string) error {
	var drove *attempt
	for {
		st, err := e.record.current(ctx, run)
		if err != nil {
			return err
		}
		a := e.attempts.known(run)
		switch ours := a != nil && (a == drove || !a.over()); {
		case ours && !e.record.own(st) && a.number < st.Attempt:
			return e.lose(ctx, a, st)
		case st.State != Pending:
			return e.outcome(ctx, st)
		case e.record.own(st):
			drove, err = e.await(ctx, st)
		default:
			err = e.watcher.await(ctx, st)
		}
		if err != nil {
			return err
		}
	}
}

// await waits until the attempt is over in this process, and on record.
func (e *Engine) await(ctx context.Context, st Status) (*attempt, error) {
	a := e.attempts.get(attemptID(st.Run, st.Attempt))
	select {
	case <-a.ended:
		return a, e.recorded(ctx, a, st)
	case <-e.record.root.Done():
		return a, errClosed()
	case <-ctx.Done():
		return a, fault.New(fault.Canceled, "wait for run %s: %w", st.Run, ctx.Err())
	}
}

// errSilent is all that is known where the engine does not say why it recorded nothing.
var errSilent = errors.New("the engine does not")

const (
	recordPause   = 5 * time.Millisecond // the engine records an outcome once its body has returned
	recordPauses  = time.Second          // maximum pause
	recordTimeout = time.Minute          // limit of attempts to record; the engine tries again after half of that

	localRecordTimeout = 15 * time.Second // limit with SQLite, for which the engine does not try again
)

// recorded returns once the outcome of a body that has returned is on record. The engine records
// none once it is closing, and none where it cannot.
func (e *Engine) recorded(ctx context.Context, a *attempt, st Status) error {
	for waited, next := time.Duration(0), recordPause; waited < e.recordTimeout; next = min(2*next, recordPauses) {
		if err := a.spoiled(); err != nil {
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
		if now, err := e.record.current(ctx, st.Run); err != nil || now.State != Pending || now.Attempt != st.Attempt {
			return err
		}
	}
	return a.spoil(unrecorded(e.cfg.Dir, "record how run "+st.Run+" ended", errSilent))
}

// lose ends the local work on a run that another executor took over.
func (e *Engine) lose(ctx context.Context, a *attempt, st Status) error {
	a.stop()
	if err := ended(ctx, a); err != nil {
		return err
	}
	return takenOver(st.Run, st.Executor)
}

// unwound waits until the body of a canceled attempt has returned. One that was not
// entered by now will find the cancellation before its first step.
func (e *Engine) unwound(ctx context.Context, st Status) error {
	a := e.attempts.known(st.Run)
	if a == nil || a.number != st.Attempt || a.phase.Load() != begun {
		return nil
	}
	return ended(ctx, a)
}

func ended(ctx context.Context, a *attempt) error {
	select {
	case <-a.ended:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Canceled, "wait for run %s: %w", a.run, ctx.Err())
	}
}

// outcome prefers the error as it was over the one on record.
func (e *Engine) outcome(ctx context.Context, st Status) error {
	if err := e.unwound(ctx, st); err != nil {
		return err
	}
	switch st.State {
	case Done:
		return nil
	case None:
		return fault.New(fault.NotFound, "run %s does not exist", st.Run)
	}
	if a := e.attempts.known(st.Run); a != nil && a.number == st.Attempt {
		if err, ok := a.outcome(); ok && err != nil {
			return err
		}
	}
	return st.Err
}

// takenOver is the error for those who drove an attempt of run that is another executor's now.
func takenOver(run, by string) error {
	return fault.New(fault.Conflict, "run %s was taken over by %s", run, by).
		WithHint("it continues there: check that process")
}
