package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	Run     string
	Attempt int // from 1; 0 if the state is None
	State   State
	Err     error // of a failed or canceled attempt, with its kind and remedy
	Started time.Time
	Steps   []StepRecord // in order; a forked attempt begins with copies of the good ones

	next uint // where a next attempt begins: the engine's number of the first bad step
}

// StepRecord is one step that returned.
type StepRecord struct {
	Name    string
	Started time.Time
	Ended   time.Time
	Err     error

	out json.RawMessage
}

// Result decodes the result of the last good step called name, and reports whether
// there is one.
func (s Status) Result(name string, out any) (bool, error) {
	for i := len(s.Steps) - 1; i >= 0; i-- {
		if r := s.Steps[i]; r.Name == name && r.Err == nil {
			return true, decode(name, r.out, out)
		}
	}
	return false, nil
}

// Last decodes the result of the last good step, whatever its name, and reports whether there
// is one.
func (s Status) Last(out any) (bool, error) {
	for _, r := range slices.Backward(s.Steps) {
		if r.Err == nil {
			return true, decode(r.Name, r.out, out)
		}
	}
	return false, nil
}

// Status reads the record of a run.
func (e *Engine) Status(ctx context.Context, run string) (Status, error) {
	st := Status{Run: run, State: None}
	if err := ctx.Err(); err != nil {
		return st, fault.Wrap(fault.Canceled, err)
	}
	all, err := dbos.ListWorkflows(e.root, dbos.WithFilterWorkflowIDPrefix(run), dbos.WithFilterLoadInput(false))
	if err != nil {
		return st, fmt.Errorf("read record of run %s: %w", run, err)
	}
	for _, w := range all {
		if r, n := splitAttempt(w.ID); r == run && n > st.Attempt {
			st.Attempt, st.State, st.Started = n, stateOf(w.Status), w.CreatedAt
			st.Err = outcomeOf(st.State, w.Error)
		}
	}
	if st.State == None {
		return st, nil
	}
	return st, e.readSteps(&st)
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
	return restore(err)
}

// readSteps fills in the steps. The engine keeps waits as steps too, a timeout as a
// failed one; they are not ours to show or to count as bad.
func (e *Engine) readSteps(st *Status) error {
	infos, err := dbos.GetWorkflowSteps(e.root, attemptID(st.Run, st.Attempt), dbos.WithStepsLoadOutput(true))
	if err != nil {
		return fmt.Errorf("read steps of run %s: %w", st.Run, err)
	}
	bad := false
	for _, s := range infos {
		own := !strings.HasPrefix(s.StepName, "DBOS.")
		bad = bad || own && s.Error != nil
		if !bad {
			st.next = uint(s.StepID) + 1
		}
		if !own {
			continue
		}
		out, err := json.Marshal(s.Output)
		if err != nil {
			return fmt.Errorf("read step %s of run %s: %w", s.StepName, st.Run, err)
		}
		st.Steps = append(st.Steps, StepRecord{Name: s.StepName, Started: s.StartedAt, Ended: s.CompletedAt, Err: restore(s.Error), out: out})
	}
	return nil
}
