package workflow

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// Start makes the run happen: it begins a new one, admits a pending one, and gives a
// failed or canceled one its next attempt. A run that is done stays done. The input is
// recorded by the first Start; later ones do not change it.
func (e *Engine) Start(ctx context.Context, run, flow string, in any) error {
	if !runID.MatchString(run) {
		return fault.New(fault.Invalid, "run id %q: want lower-case letters, digits, dot and dash", run)
	}
	st, err := e.Status(ctx, run)
	if err != nil {
		return err
	}
	if st.State == None {
		err = e.begin(ctx, run, flow, in)
	} else {
		err = e.resume(ctx, st)
	}
	if err != nil {
		return fmt.Errorf("start run %s: %w", run, told(e.cfg.Dir, err))
	}
	return nil
}

func (e *Engine) begin(ctx context.Context, run, flow string, in any) error {
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
	if e.record.shared() {
		opts = append(opts, dbos.WithQueue(e.record.queue))
	}
	e.attempts.get(run).admit()
	_, err = dbos.RunWorkflow(e.record.root, e.body, envelope{Flow: flow, In: raw}, opts...)
	return e.settled(ctx, Status{Run: run, Attempt: 1}, err)
}

// settled returns the error of an attempt that could not begin. It reports a faster executor, and
// returns nil if only the answer was lost.
func (e *Engine) settled(ctx context.Context, next Status, err error) error {
	if err == nil {
		return nil
	}
	now, cerr := e.record.current(ctx, next.Run)
	switch {
	case cerr != nil || now.Attempt < next.Attempt:
		return err
	case !e.record.own(now):
		if a := e.attempts.known(next.Run); a != nil && a.number == next.Attempt {
			a.stop()
		}
		return pendingElsewhere(now)
	}
	return nil
}

// resume has the run's current attempt go on, or begins the next one.
func (e *Engine) resume(ctx context.Context, st Status) error {
	switch {
	case st.State == Failed || st.State == Canceled:
		return e.again(ctx, st)
	case st.State != Pending:
		return nil
	case !e.record.own(st):
		return pendingElsewhere(st)
	}
	a := e.attempts.get(attemptID(st.Run, st.Attempt))
	if a.spoiled() != nil || a.ctx.Err() != nil { // Halt could not put the latter on record
		return e.take(ctx, st)
	}
	a.admit()
	return nil
}

func pendingElsewhere(st Status) error {
	return fault.New(fault.Conflict, "run %s is pending at %s", st.Run, st.Executor).
		WithHint("it goes on there; if that one is gone for good, have it taken over")
}

// again forks the run behind its last good step. A canceled attempt may still be
// unwinding in this process; two attempts must not work at the same time.
func (e *Engine) again(ctx context.Context, st Status) error {
	if err := e.unwound(ctx, st); err != nil {
		return err
	}
	next := Status{Run: st.Run, Attempt: st.Attempt + 1}
	id := attemptID(next.Run, next.Attempt)
	e.attempts.get(id).admit()
	_, err := dbos.ForkWorkflow[struct{}](e.record.client(ctx), dbos.ForkWorkflowInput{
		OriginalWorkflowID: attemptID(st.Run, st.Attempt),
		ForkedWorkflowID:   id,
		StartStep:          st.next,
		QueueName:          e.record.queueName(),
	})
	return e.settled(ctx, next, err)
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
	case st.State == Pending && !e.record.own(st):
		err = e.take(ctx, st)
	default:
		err = e.resume(ctx, st)
	}
	if err != nil {
		return fmt.Errorf("take over run %s: %w", run, told(e.cfg.Dir, err))
	}
	return nil
}

// take makes the next attempt ours. Killed in between, it leaves a canceled attempt, which Start and
// TakeOver continue as well.
func (e *Engine) take(ctx context.Context, st Status) error {
	if err := e.record.cancel(ctx, st.Run, st.Attempt); err != nil {
		return err
	}
	st, err := e.Status(ctx, st.Run) // with the records until then
	if err != nil {
		return err
	}
	return e.resume(ctx, st)
}
