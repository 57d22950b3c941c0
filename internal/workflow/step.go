package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

type (
	// flowFunc is a flow with its input as JSON
	flowFunc func(c *Context, in json.RawMessage) error
	// stepFunc is a step with input and result as JSON
	stepFunc func(ctx context.Context, in json.RawMessage) (json.RawMessage, error)
)

// Register adds a flow. Its name and the names and order of its steps are part of the recorded state:
// pending runs of a renamed flow cannot continue.
func Register[In any](e *Engine, name string, body func(*Context, In) error) {
	e.flows[name] = func(c *Context, raw json.RawMessage) error {
		var in In
		if err := json.Unmarshal(raw, &in); err != nil {
			return fmt.Errorf("read input of %s: %w", name, err)
		}
		return body(c, in)
	}
}

// RegisterStep adds a step. The function must end soon after its context does, and must be safe to run
// again with the same input.
func RegisterStep[In, Out any](e *Engine, name string, fn func(context.Context, In) (Out, error)) {
	e.steps[name] = func(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
		var in In
		if err := json.Unmarshal(raw, &in); err != nil {
			return nil, fmt.Errorf("read input of %s: %w", name, err)
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}
}

// A Context is what a flow's body uses to run its steps. It belongs to one execution of an attempt.
type Context struct {
	dbos      dbos.Context // the engine's context of the execution
	e         *Engine      // engine of the run
	attempt   *attempt     // attempt of the run
	execution *execution   // execution that the body belongs to
}

// Run returns the id of the run.
func (c *Context) Run() string { return c.attempt.run }

// Attempt returns the number of the attempt, from 1.
func (c *Context) Attempt() int { return c.attempt.number }

// Step runs the named step with in and decodes its result into out, which may be nil. If the step is
// recorded, it does not run again, and only the result is decoded.
func (c *Context) Step(name string, in, out any) error {
	fn, ok := c.e.steps[name]
	if !ok {
		return fmt.Errorf("step %q is not registered", name)
	}
	if err := c.attempt.unrecordedError(); err != nil {
		return err
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("write input of %s: %w", name, err)
	}
	result, err := dbos.RunAsStep(c.dbos, func(ctx context.Context) (json.RawMessage, error) {
		done, err := c.attempt.beginStep(c.execution)
		if err != nil {
			return nil, toStored(err)
		}
		defer done()
		ctx, stop := c.execution.bindContext(ctx)
		defer stop()
		out, err := fn(ctx, raw)
		if err == nil {
			out, err = c.e.record.signer.sign(resultUse, c.Run(), name, out)
		}
		return out, toStored(err)
	}, dbos.WithStepName(name))
	if err != nil {
		return c.classifyStepError(name, err)
	}
	if result, err = c.e.record.signer.verify(resultUse, c.Run(), name, result); err != nil {
		return err
	}
	return decodeResult(name, result, out)
}

// classifyStepError separates a step's error from an error that prevented its record. The latter does
// not fail the run: the attempt ends here, its record stays, and Start continues the run from there.
func (c *Context) classifyStepError(name string, err error) error {
	switch {
	case !ofEngine(err):
		return fromStored(err)
	case errors.Is(err, dbos.ErrConflictingWorkflowID):
		return c.waitDisowned(name)
	case errors.Is(err, dbos.ErrWorkflowCancelled), errors.Is(err, context.Canceled):
		return fromStored(err)
	case errors.Is(err, &dbos.Error{Code: dbos.ErrorCodeUnexpectedStep}), errors.Is(err, dbos.ErrStepNondeterminism), errors.Is(err, dbos.ErrNonExistentWorkflow):
		return err // the flow is not the one that was recorded; the record is gone
	}
	return c.attempt.markUnrecorded(newUnrecordedError(c.e.cfg.Dir, fmt.Sprintf("record step %s of run %s", name, c.attempt.run), err))
}

// waitDisowned returns the error of a step whose result the record refuses, because this execution does
// not own the run any more: the run was canceled or taken over, or a later execution began. Each of
// them stops this execution. waitDisowned waits for that, so that no step begins in between.
func (c *Context) waitDisowned(name string) error {
	select {
	case <-c.execution.ctx.Done():
	case <-c.dbos.Done():
	}
	return fault.New(fault.Canceled, "step %s of run %s: the run was canceled or taken over", name, c.attempt.run)
}
