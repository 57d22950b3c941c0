package flow

import (
	"context"
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
	Attempt  int // from 1; 0 if the state is None
	State    State
	Executor string // whose the current attempt is, where several share the record
	Err      error  // of a failed or canceled attempt, with its kind and remedy
	Started  time.Time
	Steps    []StepRecord // in order; a forked attempt begins with copies of the good ones

	next uint // where a next attempt begins: the engine's number of the first bad step
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
	return decode(r.Name, r.out, out)
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

// Status reads the record of a run.
func (e *Engine) Status(ctx context.Context, run string) (Status, error) {
	st, err := e.current(ctx, run)
	if err != nil || st.State == None {
		return st, err
	}
	return st, e.readSteps(ctx, &st)
}

// attemptsAtOnce are looked up together. They are asked for by name: what begins alike is only
// found by reading the record of every run there ever was.
const attemptsAtOnce = 8

// current reads the record of a run's last attempt, without its steps.
func (e *Engine) current(ctx context.Context, run string) (Status, error) {
	st := Status{Run: run, State: None}
	for full := true; full; full = st.Attempt > 0 && st.Attempt%attemptsAtOnce == 0 {
		var ids []string
		for n := range attemptsAtOnce {
			ids = append(ids, attemptID(run, st.Attempt+n+1))
		}
		found, err := e.list(ctx, dbos.WithFilterWorkflowIDs(ids...), dbos.WithFilterLoadOutput(true))
		if err != nil {
			return st, fmt.Errorf("read record of run %s: %w", run, e.told(err))
		}
		if len(found) == 0 {
			break
		}
		e.note(&st, found)
	}
	return st, nil
}

func (e *Engine) list(ctx context.Context, filters ...dbos.ListWorkflowsOption) ([]dbos.WorkflowStatus, error) {
	if err := ctx.Err(); err != nil {
		return nil, fault.Wrap(fault.Canceled, err)
	}
	found, err := dbos.ListWorkflows(e.client(ctx), append(filters, dbos.WithFilterLoadInput(false))...)
	if err != nil && ctx.Err() != nil {
		return nil, fault.Wrap(fault.Canceled, err)
	}
	return found, err
}

// note takes the last of the attempts for the run's current one.
func (e *Engine) note(st *Status, attempts []dbos.WorkflowStatus) {
	for _, w := range attempts {
		if r, n := splitAttempt(w.ID); r == st.Run && n > st.Attempt {
			st.Attempt, st.State, st.Started, st.Executor = n, stateOf(w.Status), w.CreatedAt, e.owner(w)
			st.Err = outcomeOf(st.State, w.Error)
		}
	}
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

// oldFence is a step that earlier versions recorded in an attempt that they took over.
const oldFence = "decamp.fence"

// readSteps fills in the steps.
func (e *Engine) readSteps(ctx context.Context, st *Status) error {
	infos, err := dbos.GetWorkflowSteps(e.client(ctx), attemptID(st.Run, st.Attempt), dbos.WithStepsLoadOutput(true))
	if err != nil {
		return fmt.Errorf("read steps of run %s: %w", st.Run, e.told(err))
	}
	bad := false
	for _, s := range infos {
		if s.StepName == oldFence {
			continue
		}
		bad = bad || s.Error != nil
		if !bad {
			st.next = uint(s.StepID) + 1
		}
		out, err := json.Marshal(s.Output)
		if err != nil {
			return fmt.Errorf("read step %s of run %s: %w", s.StepName, st.Run, err)
		}
		r := StepRecord{Name: s.StepName, Started: s.StartedAt, Ended: s.CompletedAt, Err: restore(s.Error)}
		if r.Err == nil {
			r.out, r.refused = e.verifyDoc(resultUse, st.Run, r.Name, out)
		}
		st.Steps = append(st.Steps, r)
	}
	return nil
}
