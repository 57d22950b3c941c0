package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// envelope is the input of every run for the engine.
type envelope struct {
	Flow string          `json:"flow"` // name of the registered flow
	In   json.RawMessage `json:"in"`   // input of the flow as JSON, signed if there are keys
}

// runBody is the only function that is registered with the engine; it finds the flow by name. The error
// ErrConflictingWorkflowID makes the engine record no outcome.
func (e *Engine) runBody(ctx dbos.Context, in envelope) (struct{}, error) {
	id, err := dbos.GetWorkflowID(ctx)
	if err != nil {
		return struct{}{}, err
	}
	a := e.attempts.getOrAdd(id)
	if !a.phase.CompareAndSwap(phaseWaiting, phaseBegun) && a.phase.Load() == phaseStopped { // checked before runFlow reads the cancellation: see waitUnwound
		return struct{}{}, toStored(a.err)
	}
	x := a.beginExecution()
	err = e.runFlow(ctx, a, x, in)
	if a.endExecution(x) {
		return struct{}{}, dbos.ErrConflictingWorkflowID // the engine records no outcome for that
	}
	if spoiled := a.unrecordedError(); spoiled != nil {
		err = errors.Join(spoiled, dbos.ErrConflictingWorkflowID)
	}
	a.end(err)
	return struct{}{}, toStored(err)
}

// runFlow waits until the run may continue, verifies its input and runs the flow. A run without a Start
// in this process stays pending: this process does not have the password of its source. A panic of the
// flow is fault.Internal: the engine would recover it too, but then the attempt would never end.
func (e *Engine) runFlow(ctx dbos.Context, a *attempt, x *execution, in envelope) (err error) {
	defer func() {
		if r := recover(); r != nil {
			e.cfg.Log.Error("run panicked", "run", a.run, "panic", r, "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "run %s panicked: %v", a.run, r).WithHint("this is a bug in decamp; the log contains the details")
		}
	}()
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
