package flow

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

type (
	flowFunc func(c *Context, in json.RawMessage) error
	stepFunc func(ctx context.Context, in json.RawMessage) (json.RawMessage, error)
)

// Register names a flow. Its name and the names and order of its steps are part of the
// recorded state: renaming one strands runs that are under way.
func Register[In any](e *Engine, name string, body func(*Context, In) error) {
	e.flows[name] = func(c *Context, raw json.RawMessage) error {
		var in In
		if err := json.Unmarshal(raw, &in); err != nil {
			return fmt.Errorf("read input of %s: %w", name, err)
		}
		return body(c, in)
	}
}

// RegisterStep names a step. The function must end soon after its context does, and
// must be safe to run again with the same input.
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

// A Context is a flow body's view of the attempt it drives.
type Context struct {
	dbos      dbos.Context
	e         *Engine
	attempt   *attempt
	execution *execution
}

// Run returns the id of the run.
func (c *Context) Run() string { return c.attempt.run }

// Attempt returns which try of the run this is, from 1.
func (c *Context) Attempt() int { return c.attempt.number }

// Step runs the named step with in and decodes its result into out, which may be nil.
// If the step is on record, only the result is decoded.
func (c *Context) Step(name string, in, out any) error {
	fn, ok := c.e.steps[name]
	if !ok {
		return fmt.Errorf("step %q is not registered", name)
	}
	if err := c.attempt.spoiled(); err != nil {
		return err
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("write input of %s: %w", name, err)
	}
	result, err := dbos.RunAsStep(c.dbos, func(ctx context.Context) (json.RawMessage, error) {
		done, err := c.attempt.work(c.execution)
		if err != nil {
			return nil, store(err)
		}
		defer done()
		ctx, stop := c.execution.bind(ctx)
		defer stop()
		out, err := fn(ctx, raw)
		if err == nil {
			out, err = c.e.record.signer.sign(resultUse, c.Run(), name, out)
		}
		return out, store(err)
	}, dbos.WithStepName(name))
	if err != nil {
		return c.explain(name, err)
	}
	if result, err = c.e.record.signer.verify(resultUse, c.Run(), name, result); err != nil {
		return err
	}
	return decode(name, result, out)
}

func decode(name string, raw json.RawMessage, out any) error {
	if out == nil || len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("read result of %s: %w", name, err)
	}
	return nil
}
