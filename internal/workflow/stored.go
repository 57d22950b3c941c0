package workflow

import (
	"context"
	"errors"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// toStored turns err into the one error type that the engine keeps as JSON, with kind and
// remedy beside the text, so that a later process reports it as this one does.
func toStored(err error) error {
	if err == nil {
		return nil
	}
	return &stored{
		PortableWorkflowError: dbos.PortableWorkflowError{
			Name:    fault.KindOf(err).String(),
			Message: err.Error(),
			Data:    fault.HintOf(err),
		},
		cause: err,
	}
}

// stored is the error for the engine; cause is the original error in this process.
type stored struct {
	dbos.PortableWorkflowError
	cause error
}

// Unwrap gives the engine its own type, and errors.Is the cause.
func (s *stored) Unwrap() []error { return []error{&s.PortableWorkflowError, s.cause} }

// fromStored is the way back: the cause itself if it happened in this process, else an
// error with the recorded kind and remedy.
func fromStored(err error) error {
	var s *stored
	var p *dbos.PortableWorkflowError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &s):
		return s.cause
	case errors.As(err, &p):
		return recordedFault(p)
	case errors.Is(err, dbos.ErrWorkflowCancelled), errors.Is(err, context.Canceled):
		return fault.Wrap(fault.Canceled, err)
	}
	return err
}

func recordedFault(p *dbos.PortableWorkflowError) error {
	e := fault.New(fault.KindNamed(p.Name), "%s", p.Message)
	if hint, ok := p.Data.(string); ok {
		e.Hint = hint
	}
	return e
}

// ofEngine reports whether err comes from the engine, and not from a step, now or recorded.
func ofEngine(err error) bool {
	var ours *stored
	var recorded *dbos.PortableWorkflowError
	var engine *dbos.Error
	return !errors.As(err, &ours) && !errors.As(err, &recorded) && errors.As(err, &engine)
}
