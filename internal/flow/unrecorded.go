package flow

import (
	"context"
	"errors"
	"fmt"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// explain tells what a step failed with from what kept the engine from recording it. The latter is
// no failure of the run: the attempt ends here and now, its record stays as it is, and Start
// continues the run from there.
func (c *Context) explain(name string, err error) error {
	switch {
	case !ofEngine(err):
		return restore(err)
	case errors.Is(err, dbos.ErrConflictingWorkflowID):
		return c.disowned(name)
	case errors.Is(err, dbos.ErrWorkflowCancelled), errors.Is(err, context.Canceled):
		return restore(err)
	case errors.Is(err, &dbos.Error{Code: dbos.ErrorCodeUnexpectedStep}), errors.Is(err, dbos.ErrStepNondeterminism), errors.Is(err, dbos.ErrNonExistentWorkflow):
		return err // the flow is not the one that was recorded; the record is gone
	}
	return c.attempt.spoil(c.e.record.unrecorded(fmt.Sprintf("record step %s of run %s", name, c.attempt.run), err))
}

// disowned returns the error of a step whose result the record refuses, because this execution does
// not own the run any more: the run was canceled or taken over, or a later execution began. Each of
// them stops this execution. disowned waits for that, so that no step begins in between.
func (c *Context) disowned(name string) error {
	select {
	case <-c.execution.ctx.Done():
	case <-c.dbos.Done():
	}
	return fault.New(fault.Canceled, "step %s of run %s: the run was canceled or taken over", name, c.attempt.run)
}

// unrecorded is the error of an attempt that ended because the engine could not record it.
func (r *record) unrecorded(what string, err error) error {
	if told := r.told(err); told != err {
		return fmt.Errorf("%s: %w", what, told)
	}
	return fault.New(fault.Transient, "%s: %w", what, err).
		WithHint("what was recorded before stands: see that the database can be written to, and start the run again")
}

// ofEngine reports whether err is the engine's own, and neither what a step returned now nor what is
// on record of one.
func ofEngine(err error) bool {
	var ours *stored
	var recorded *dbos.PortableWorkflowError
	var engine *dbos.Error
	return !errors.As(err, &ours) && !errors.As(err, &recorded) && errors.As(err, &engine)
}
