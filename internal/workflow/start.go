package workflow

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// Start starts a new run, admits a pending one, and begins the next attempt of a failed or canceled
// one. A completed run stays completed. The first Start records the input; later ones do not change it.
func (e *Engine) Start(ctx context.Context, run, flow string, in any) error {
	if !runID.MatchString(run) {
		return fault.New(fault.Invalid, "run id %q: want lower-case letters, digits, dot and dash", run)
	}
	st, err := e.Status(ctx, run)
	if err != nil {
		return err
	}
	if st.State == None {
		err = e.beginRun(ctx, run, flow, in)
	} else {
		err = e.resumeRun(ctx, st)
	}
	if err != nil {
		return fmt.Errorf("start run %s: %w", run, toFault(e.cfg.Dir, err))
	}
	return nil
}

// beginRun records and queues the first attempt of a run.
func (e *Engine) beginRun(ctx context.Context, run, flow string, in any) error {
	if _, ok := e.flows[flow]; !ok {
		return fmt.Errorf("flow %q is not registered", flow)
	}
	raw, err := json.Marshal(in)
	if err == nil {
		raw, err = e.record.signer.sign(inputUse, run, flow, raw)
	}
	if err != nil {
		return err
	}
	opts := []dbos.WorkflowOption{dbos.WithWorkflowID(run), dbos.WithPortableWorkflow()}
	if e.record.isShared() {
		opts = append(opts, dbos.WithQueue(e.record.queue))
	}
	e.attempts.getOrAdd(run).admit()
	_, err = dbos.RunWorkflow(e.record.root, e.runBody, envelope{Flow: flow, In: raw}, opts...)
	return e.settleStart(ctx, Status{Run: run, Attempt: 1}, err)
}

// settleStart returns the error of an attempt that could not begin. It returns fault.Conflict if
// another executor was faster, and nil if only the response was lost.
func (e *Engine) settleStart(ctx context.Context, next Status, err error) error {
	if err == nil {
		return nil
	}
	now, cerr := e.record.readCurrent(ctx, next.Run)
	switch {
	case cerr != nil || now.Attempt < next.Attempt:
		return err
	case !e.record.isOwn(now):
		if a := e.attempts.latestOf(next.Run); a != nil && a.number == next.Attempt {
			a.stop()
		}
		return pendingElsewhere(now)
	}
	return nil
}

// resumeRun continues the run's current attempt, or begins the next one. A completed run is left
// unchanged.
func (e *Engine) resumeRun(ctx context.Context, st Status) error {
	switch {
	case st.State == Failed || st.State == Canceled:
		return e.forkAttempt(ctx, st)
	case st.State != Pending:
		return nil
	case !e.record.isOwn(st):
		return pendingElsewhere(st)
	}
	a := e.attempts.getOrAdd(attemptID(st.Run, st.Attempt))
	if a.unrecordedError() != nil || a.ctx.Err() != nil { // Halt could not put the latter on record
		return e.takeAttempt(ctx, st)
	}
	a.admit()
	return nil
}

// pendingElsewhere returns the fault.Conflict for a run that another executor owns.
func pendingElsewhere(st Status) error {
	return fault.New(fault.Conflict, "run %s is pending at %s", st.Run, st.Executor).
		WithHint("it continues there; if that process has ended for good, let another one take it over")
}

// forkAttempt begins the next attempt after the last good step. A canceled attempt may still be ending
// in this process; forkAttempt waits for it, because two attempts must not work at the same time.
func (e *Engine) forkAttempt(ctx context.Context, st Status) error {
	if err := e.waitUnwound(ctx, st); err != nil {
		return err
	}
	next := Status{Run: st.Run, Attempt: st.Attempt + 1}
	id := attemptID(next.Run, next.Attempt)
	e.attempts.getOrAdd(id).admit()
	_, err := dbos.ForkWorkflow[struct{}](e.record.clientFor(ctx), dbos.ForkWorkflowInput{
		OriginalWorkflowID: attemptID(st.Run, st.Attempt),
		ForkedWorkflowID:   id,
		StartStep:          st.next,
		QueueName:          e.record.queueName(),
	})
	return e.settleStart(ctx, next, err)
}

// TakeOver continues a run here that is pending at another executor. It cancels the current attempt,
// which ends its records, and begins the next one after the last good step. The caller must ensure that
// the other executor has ended, or has lost its claim. A pending run of this executor, and a failed or
// canceled one, is started; a completed one stays completed.
func (e *Engine) TakeOver(ctx context.Context, run string) error {
	st, err := e.Status(ctx, run)
	switch {
	case err != nil:
		return err
	case st.State == None:
		return fault.New(fault.NotFound, "run %s does not exist", run)
	case st.State == Pending && !e.record.isOwn(st):
		err = e.takeAttempt(ctx, st)
	default:
		err = e.resumeRun(ctx, st)
	}
	if err != nil {
		return fmt.Errorf("take over run %s: %w", run, toFault(e.cfg.Dir, err))
	}
	return nil
}

// takeAttempt cancels the current attempt and begins the next one here. If the process is killed in
// between, a canceled attempt is left, which Start and TakeOver continue as well.
func (e *Engine) takeAttempt(ctx context.Context, st Status) error {
	if err := e.record.cancelAttempt(ctx, st.Run, st.Attempt); err != nil {
		return err
	}
	st, err := e.Status(ctx, st.Run) // includes the steps that were recorded until the cancellation
	if err != nil {
		return err
	}
	return e.resumeRun(ctx, st)
}
