package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// State is the state of a run.
type State string

const (
	None     State = "none"     // never started, or forgotten
	Pending  State = "pending"  // running, or waiting to be continued
	Done     State = "done"     // completed without an error
	Failed   State = "failed"   // the current attempt ended with an error
	Canceled State = "canceled" // stopped by Cancel
)

// Status is the record of a run's current attempt.
type Status struct {
	Run      string       // id of the run
	Attempt  int          // number of the attempt, from 1; 0 if the state is None
	State    State        // state of the current attempt
	Executor string       // executor of the current attempt, if several share the record
	Err      error        // error of a failed or canceled attempt, with its kind and remedy
	Started  time.Time    // when the current attempt was created
	Steps    []StepRecord // steps in order; a forked attempt begins with copies of the good ones

	next uint // the engine's number of the first bad step, at which a next attempt begins
}

// StepRecord is one step that returned.
type StepRecord struct {
	Name    string    // name of the step
	Started time.Time // when the step began
	Ended   time.Time // when the step returned
	Err     error     // error of the step with its kind and remedy; nil for a good step

	out     json.RawMessage // result as JSON
	refused error           // why out must not be used; nil if it is verified
}

// decode decodes the result into out. It returns ErrRefused if the result is not verified.
func (r StepRecord) decode(out any) error {
	if r.refused != nil {
		return r.refused
	}
	return decodeResult(r.Name, r.out, out)
}

// Result decodes the result of the last good step of that name, and reports whether there is one.
func (s Status) Result(name string, out any) (bool, error) {
	for i := len(s.Steps) - 1; i >= 0; i-- {
		if r := s.Steps[i]; r.Name == name && r.Err == nil {
			return true, r.decode(out)
		}
	}
	return false, nil
}

// Last decodes the result of the last good step, whatever its name, and reports whether there
// is one.
func (s Status) Last(out any) (bool, error) {
	for _, r := range slices.Backward(s.Steps) {
		if r.Err == nil {
			return true, r.decode(out)
		}
	}
	return false, nil
}

// stateOf returns the State for a state of the engine. An exceeded number of recoveries counts as
// Failed.
func stateOf(s dbos.WorkflowStatusType) State {
	switch s {
	case dbos.WorkflowStatusPending, dbos.WorkflowStatusEnqueued, dbos.WorkflowStatusDelayed:
		return Pending
	case dbos.WorkflowStatusSuccess:
		return Done
	case dbos.WorkflowStatusCancelled:
		return Canceled
	}
	return Failed
}

// outcomeOf returns the error of an attempt in state s that recorded err.
func outcomeOf(s State, err error) error {
	if s == Canceled {
		return fault.New(fault.Canceled, "run was canceled")
	}
	return fromStored(err)
}

// decodeResult decodes a step's result into out, which may be nil. name is for the error only.
func decodeResult(name string, raw json.RawMessage, out any) error {
	if out == nil || len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("read result of %s: %w", name, err)
	}
	return nil
}
