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
	if st.State == None {
		err = e.begin(ctx, run, flow, in)
	} else {
		err = e.resume(ctx, st)
	}
	if err != nil {
		return fmt.Errorf("start run %s: %w", run, e.told(err))
	}
	return nil
}

func (e *Engine) begin(ctx context.Context, run, flow string, in any) error {
	if _, ok := e.flows[flow]; !ok {
		return fmt.Errorf("flow %q is not registered", flow)
	}
	raw, err := json.Marshal(in)
	if err == nil {
		raw, err = e.signDoc(inputUse, run, flow, raw)
	}
	if err != nil {
		return err
	}
	opts := []dbos.WorkflowOption{dbos.WithWorkflowID(run), dbos.WithPortableWorkflow()}
	if e.shared() {
		opts = append(opts, dbos.WithQueue(e.queue))
	}
	e.live(run).admit()
	_, err = dbos.RunWorkflow(e.root, e.body, envelope{Flow: flow, In: raw}, opts...)
	return e.settled(ctx, Status{Run: run, Attempt: 1}, err)
}

// settled returns why an attempt could not be begun. Where another executor was faster it says so,
// and it is no error where only the answer was lost.
func (e *Engine) settled(ctx context.Context, next Status, err error) error {
	if err == nil {
		return nil
	}
	now, cerr := e.current(ctx, next.Run)
	switch {
	case cerr != nil || now.Attempt < next.Attempt:
		return err
	case !e.own(now):
		if l := e.known(next.Run); l != nil && l.attempt == next.Attempt {
			l.stop()
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
	case !e.own(st):
		return pendingElsewhere(st)
	}
	l := e.live(attemptID(st.Run, st.Attempt))
	if l.spoiled() != nil || l.ctx.Err() != nil { // Halt could not put the latter on record
		return e.take(ctx, st)
	}
	l.admit()
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
	e.live(id).admit()
	_, err := dbos.ForkWorkflow[struct{}](e.client(ctx), dbos.ForkWorkflowInput{
		OriginalWorkflowID: attemptID(st.Run, st.Attempt),
		ForkedWorkflowID:   id,
		StartStep:          st.next,
		QueueName:          e.queueName(),
	})
	return e.settled(ctx, next, err)
}

// Cancel records that the run is to stop, then ends the context of the step it is in.
// Wait tells when it has; another executor, if it is there that it goes on, needs about a second to
// learn of it. Canceling a run that is over does nothing.
func (e *Engine) Cancel(ctx context.Context, run string) error {
	st, err := e.current(ctx, run)
	if err != nil || st.State != Pending {
		return err
	}
	id := attemptID(run, st.Attempt)
	if err := dbos.CancelWorkflow(e.client(ctx), id); err != nil {
		return fmt.Errorf("cancel run %s: %w", run, e.told(err))
	}
	if e.own(st) {
		e.live(id).stop()
	}
	return nil
}

// haltWait is how long Halt waits for the record, before it ends the step all the same and after
// that: a part of what a worker whose lease is over has to stop in.
const haltWait = 500 * time.Millisecond

// Halt ends what this process does of a run, whether or not the record can be reached, and
// returns what that came to once its step has returned: nil if it was done before, fault.Canceled
// if what it came to cannot be recorded at once. What another executor does of the run is left
// alone. That it was canceled is put on record if that can be done at once.
func (e *Engine) Halt(run string) error {
	l := e.known(run)
	if l == nil {
		return fault.New(fault.Canceled, "run %s is not driven here", run)
	}
	if !l.over() {
		e.recordHalt(l)
		l.stop()
	}
	select {
	case <-l.ended:
		return l.err
	case <-l.still():
		return e.halted(l)
	case <-e.root.Done():
		return errClosed()
	}
}

// halted returns how an attempt ended that does nothing any more. While the record is out of reach
// it does not end: who is cut off from it must not keep the images from those who are not.
func (e *Engine) halted(l *live) error {
	select {
	case <-l.ended:
		return l.err
	case <-e.root.Done():
		return errClosed()
	case <-time.After(haltWait):
		return fault.New(fault.Canceled, "run %s was stopped, and that is not on record", l.run)
	}
}

func (e *Engine) recordHalt(l *live) {
	ctx, cancel := context.WithTimeout(context.Background(), haltWait)
	defer cancel()
	if err := dbos.CancelWorkflow(e.client(ctx), attemptID(l.run, l.attempt)); err != nil {
		e.cfg.Log.Info("a run is stopped without its record", "run", l.run, "err", err)
	}
}

// Forget removes every record of a run that is over, so that its id starts afresh.
func (e *Engine) Forget(ctx context.Context, run string) error {
	st, err := e.current(ctx, run)
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
	err = errors.Join(e.unwound(ctx, st), dbos.DeleteWorkflows(e.client(ctx), ids))
	e.mu.Lock()
	delete(e.runs, run)
	e.mu.Unlock()
	return e.told(err)
}
