package workflow

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// envelope is the input of every run: which flow, and its input.
type envelope struct {
	Flow string          `json:"flow"`
	In   json.RawMessage `json:"in"`
}

// body is the one function the engine knows; it finds the flow by name.
func (e *Engine) body(ctx dbos.Context, in envelope) (struct{}, error) {
	id, err := dbos.GetWorkflowID(ctx)
	if err != nil {
		return struct{}{}, err
	}
	a := e.attempts.get(id)
	if !a.phase.CompareAndSwap(waits, begun) && a.phase.Load() == stopped { // before drive looks whether it was canceled: see unwound
		return struct{}{}, store(a.err)
	}
	x := a.execute()
	err = e.drive(ctx, a, x, in)
	if a.superseded(x) {
		return struct{}{}, dbos.ErrConflictingWorkflowID // the engine records no outcome for that
	}
	if spoiled := a.spoiled(); spoiled != nil {
		err = errors.Join(spoiled, dbos.ErrConflictingWorkflowID)
	}
	a.end(err)
	return struct{}{}, store(err)
}

// drive waits until the run may continue. A run without a Start in this process stays pending: this
// process does not have its source's password.
func (e *Engine) drive(ctx dbos.Context, a *attempt, x *execution, in envelope) error {
	if !e.cfg.Resume(a.run) {
		select {
		case <-a.admitted:
		case <-x.ctx.Done():
		case <-ctx.Done():
		}
	}
	if err := errors.Join(ctx.Err(), x.ctx.Err()); err != nil {
		return fault.New(fault.Canceled, "run %s was stopped: %w", a.run, err)
	}
	fn, ok := e.flows[in.Flow]
	if !ok {
		return fmt.Errorf("run %s: flow %q is not registered", a.run, in.Flow)
	}
	raw, err := e.record.signer.verify(inputUse, a.run, in.Flow, in.In)
	if err != nil {
		return err
	}
	return fn(&Context{dbos: ctx, e: e, attempt: a, execution: x}, raw)
}
