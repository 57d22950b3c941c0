package flow

import (
	"context"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Wait returns when the run's current attempt is over, with the error it ended with; no
// step of it is running any more. Of a run at another executor it returns what is on record, within
// about a second.
// It returns a fault.Canceled if ctx or the engine ends first; the run stays pending. It returns a
// fault.Conflict when another executor took over what went on here.
func (e *Engine) Wait(ctx context.Context, run string) error {
	var drove *live
	for {
		st, err := e.current(ctx, run)
		if err != nil {
			return err
		}
		l := e.known(run)
		switch ours := l != nil && (l == drove || !l.over()); {
		case ours && !e.own(st) && l.attempt < st.Attempt:
			return e.lose(ctx, l, st)
		case st.State != Pending:
			return e.outcome(ctx, st)
		case e.own(st):
			drove, err = e.await(ctx, st)
		default:
			err = e.awaitOther(ctx, st)
		}
		if err != nil {
			return err
		}
	}
}

// await waits until the attempt is over in this process, and on record.
func (e *Engine) await(ctx context.Context, st Status) (*live, error) {
	l := e.live(attemptID(st.Run, st.Attempt))
	select {
	case <-l.ended:
		return l, e.recorded(ctx, l, st)
	case <-e.root.Done():
		return l, errClosed()
	case <-ctx.Done():
		return l, fault.New(fault.Canceled, "wait for run %s: %w", st.Run, ctx.Err())
	}
}

// errSilent is all that is known where the engine does not say why it recorded nothing.
var errSilent = errors.New("the engine does not")

func errClosed() error { return fault.New(fault.Canceled, "engine was closed") }

const (
	recordPause   = 5 * time.Millisecond // the engine records an outcome once its body has returned
	recordPauses  = time.Second          // at most
	recordTimeout = time.Minute          // for what it cannot record; it tries again after half of that

	localRecordTimeout = 15 * time.Second // of SQLite, which it does not ask a second time
)

// recorded returns once the outcome of a body that has returned is on record. The engine records
// none once it is closing, and none where it cannot.
func (e *Engine) recorded(ctx context.Context, l *live, st Status) error {
	for waited, next := time.Duration(0), recordPause; waited < e.recordTimeout; next = min(2*next, recordPauses) {
		if err := l.spoiled(); err != nil {
			return err
		}
		select {
		case <-time.After(next):
			waited += next
		case <-e.root.Done():
			return errClosed()
		case <-ctx.Done():
			return fault.Wrap(fault.Canceled, ctx.Err())
		}
		if now, err := e.current(ctx, st.Run); err != nil || now.State != Pending || now.Attempt != st.Attempt {
			return err
		}
	}
	return l.spoil(e.unrecorded("record how run "+st.Run+" ended", errSilent))
}

// lose ends what is left here of a run that another executor took over.
func (e *Engine) lose(ctx context.Context, l *live, st Status) error {
	l.stop()
	if err := ended(ctx, l); err != nil {
		return err
	}
	return takenOver(st.Run, st.Executor)
}

// unwound waits until the body of a canceled attempt has returned. One that was not
// entered by now will find the cancellation before its first step.
func (e *Engine) unwound(ctx context.Context, st Status) error {
	l := e.known(st.Run)
	if l == nil || l.attempt != st.Attempt || l.phase.Load() != begun {
		return nil
	}
	return ended(ctx, l)
}

func ended(ctx context.Context, l *live) error {
	select {
	case <-l.ended:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Canceled, "wait for run %s: %w", l.run, ctx.Err())
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
	if l := e.known(st.Run); l != nil && l.attempt == st.Attempt {
		if err, ok := l.outcome(); ok && err != nil {
			return err
		}
	}
	return st.Err
}
