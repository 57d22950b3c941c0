package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// runID is what a run may be called: readable, a file name, and free of the slash that
// numbers attempts.
var runID = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)

func attemptID(run string, attempt int) string {
	if attempt == 1 {
		return run
	}
	return fmt.Sprintf("%s/%d", run, attempt)
}

func splitAttempt(id string) (run string, attempt int) {
	run, number, ok := strings.Cut(id, "/")
	if n, err := strconv.Atoi(number); ok && err == nil {
		return run, n
	}
	return run, 1
}

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
	switch st.State {
	case None:
		err = e.begin(run, flow, in)
	case Pending:
		e.live(attemptID(run, st.Attempt)).admit()
	case Failed, Canceled:
		err = e.again(ctx, st)
	}
	if err != nil {
		return fmt.Errorf("start run %s: %w", run, err)
	}
	return nil
}

func (e *Engine) begin(run, flow string, in any) error {
	if _, ok := e.flows[flow]; !ok {
		return fmt.Errorf("flow %q is not registered", flow)
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	e.live(run).admit()
	_, err = dbos.RunWorkflow(e.root, e.body, envelope{Flow: flow, In: raw},
		dbos.WithWorkflowID(run), dbos.WithPortableWorkflow())
	return err
}

// again forks the run behind its last good step. A canceled attempt may still be
// unwinding in this process; two attempts must not work at the same time.
func (e *Engine) again(ctx context.Context, st Status) error {
	if err := e.unwound(ctx, st); err != nil {
		return err
	}
	next := attemptID(st.Run, st.Attempt+1)
	e.live(next).admit()
	_, err := dbos.ForkWorkflow[struct{}](e.root, dbos.ForkWorkflowInput{
		OriginalWorkflowID: attemptID(st.Run, st.Attempt),
		ForkedWorkflowID:   next,
		StartStep:          st.next,
	})
	return err
}

// unwound waits until the body of a canceled attempt has returned. One that was not
// entered by now will find the cancellation before its first step.
func (e *Engine) unwound(ctx context.Context, st Status) error {
	l := e.live(attemptID(st.Run, st.Attempt))
	if !l.begun.Load() {
		return nil
	}
	select {
	case <-l.ended:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Canceled, "wait for run %s: %w", st.Run, ctx.Err())
	}
}

// Wait returns when the run's current attempt is over, with the error it ended with; no
// step of it is running any more.
// It returns a fault.Canceled if ctx or the engine ends first; the run stays pending.
func (e *Engine) Wait(ctx context.Context, run string) error {
	for {
		st, err := e.Status(ctx, run)
		if err != nil {
			return err
		}
		if st.State != Pending {
			return e.outcome(ctx, st)
		}
		l := e.live(attemptID(run, st.Attempt))
		select {
		case <-l.ended:
			err = e.recorded(ctx)
		case <-time.After(500 * time.Millisecond): // an attempt canceled before it began never ends
		case <-ctx.Done():
			err = fault.New(fault.Canceled, "wait for run %s: %w", run, ctx.Err())
		}
		if err != nil {
			return err
		}
	}
}

// recorded gives the engine the moment it needs to record the outcome of a body that
// has returned. It records nothing once it is closing.
func (e *Engine) recorded(ctx context.Context) error {
	select {
	case <-e.root.Done():
		return fault.New(fault.Canceled, "engine was closed")
	case <-ctx.Done():
		return fault.Wrap(fault.Canceled, ctx.Err())
	case <-time.After(5 * time.Millisecond):
		return nil
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
	if err, ok := e.live(attemptID(st.Run, st.Attempt)).outcome(); ok && err != nil {
		return err
	}
	return st.Err
}

// Signal leaves msg for the run's current attempt. It is kept until WaitSignal takes it.
func (e *Engine) Signal(ctx context.Context, run, topic string, msg any) error {
	st, err := e.Status(ctx, run)
	if err != nil {
		return err
	}
	if st.State != Pending {
		return fault.New(fault.Conflict, "signal run %s: it is %s", run, st.State)
	}
	raw, err := json.Marshal(msg)
	if err != nil {
		return fmt.Errorf("signal run %s: %w", run, err)
	}
	if err := dbos.Send(e.root, attemptID(run, st.Attempt), json.RawMessage(raw), topic, dbos.WithPortableSend()); err != nil {
		return fmt.Errorf("signal run %s: %w", run, err)
	}
	return nil
}

// Cancel records that the run is to stop, then ends the context of the step it is in.
// Wait tells when it has. Canceling a run that is over does nothing.
func (e *Engine) Cancel(ctx context.Context, run string) error {
	st, err := e.Status(ctx, run)
	if err != nil || st.State != Pending {
		return err
	}
	id := attemptID(run, st.Attempt)
	if err := dbos.CancelWorkflow(e.root, id); err != nil {
		return fmt.Errorf("cancel run %s: %w", run, err)
	}
	e.live(id).cancel()
	return nil
}

// Forget removes every record of a run that is over, so that its id starts afresh.
func (e *Engine) Forget(ctx context.Context, run string) error {
	st, err := e.Status(ctx, run)
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
	err = errors.Join(e.unwound(ctx, st), dbos.DeleteWorkflows(e.root, ids))
	e.mu.Lock()
	delete(e.runs, run)
	e.mu.Unlock()
	return err
}
