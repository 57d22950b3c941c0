package workflow

import (
	"context"
	"errors"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// toStored returns err as the error type that the engine stores as JSON, with kind and remedy beside
// the text, so that a later process reports the same error.
func toStored(err error) error {
	if err == nil {
		return nil
	}
	return &storedError{
		PortableWorkflowError: dbos.PortableWorkflowError{
			Name:    fault.KindOf(err).String(),
			Message: err.Error(),
			Data:    fault.HintOf(err),
		},
		cause: err,
	}
}

// storedError is an error in the form that the engine stores.
type storedError struct {
	dbos.PortableWorkflowError
	cause error // original error in this process
}

// Unwrap returns the engine's own type, and the cause for errors.Is.
func (s *storedError) Unwrap() []error { return []error{&s.PortableWorkflowError, s.cause} }

// fromStored is the inverse of toStored: it returns the cause if the error occurred in this process,
// else an error with the recorded kind and remedy.
func fromStored(err error) error {
	var s *storedError
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

// recordedFault returns a recorded error as a fault.
func recordedFault(p *dbos.PortableWorkflowError) error {
	e := fault.New(fault.KindNamed(p.Name), "%s", p.Message)
	if hint, ok := p.Data.(string); ok {
		e.Hint = hint
	}
	return e
}

// ofEngine reports whether err comes from the engine, and not from a step, now or recorded.
func ofEngine(err error) bool {
	var ours *storedError
	var recorded *dbos.PortableWorkflowError
	var engine *dbos.Error
	return !errors.As(err, &ours) && !errors.As(err, &recorded) && errors.As(err, &engine)
}
