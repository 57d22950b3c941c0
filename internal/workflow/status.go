package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// State is where a run stands.
type State string

const (
	None     State = "none"     // never started, or forgotten
	Pending  State = "pending"  // running, or to be continued
	Done     State = "done"     // ended well
	Failed   State = "failed"   // the current attempt ended with an error
	Canceled State = "canceled" // stopped by Cancel
)

// Status is the record of a run's current attempt.
type Status struct {
	Run      string
	Attempt  int // number of the attempt, from 1; 0 if the state is None
	State    State
	Executor string // executor of the current attempt, if several share the record
	Err      error  // error of a failed or canceled attempt, with its kind and remedy
	Started  time.Time
	Steps    []StepRecord // steps in order; a forked attempt begins with copies of the good ones

	next uint // the engine's number of the first bad step, where a next attempt begins
}

// StepRecord is one step that returned.
type StepRecord struct {
	Name    string
	Started time.Time
	Ended   time.Time
	Err     error

	out     json.RawMessage
	refused error // why out is not to be used; nil if it is
}

func (r StepRecord) decode(out any) error {
	if r.refused != nil {
		return r.refused
	}
	return decodeResult(r.Name, r.out, out)
}

// Result decodes the result of the last good step called name, and reports whether
// there is one.
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

func outcomeOf(s State, err error) error {
	if s == Canceled {
		return fault.New(fault.Canceled, "run was canceled")
	}
	return fromStored(err)
}

func decodeResult(name string, raw json.RawMessage, out any) error {
	if out == nil || len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("read result of %s: %w", name, err)
	}
	return nil
}
