package journal

import "time"

// State is the state of a run according to its journal.
type State string

const (
	Planned   State = "planned"   // not begun
	Open      State = "open"      // running, or interrupted by a crash
	Stopped   State = "stopped"   // stopped by a user
	Failed    State = "failed"    // ended by an error
	Done      State = "done"      // the VM is published
	Discarded State = "discarded" // all data that was not published is removed
)

// Run is the execution of a plan.
type Run struct {
	Plan    Plan        `json:"plan"`              // intent of the run
	State   State       `json:"state"`             // state by the last event
	Step    string      `json:"step,omitempty"`    // last step that began
	Starts  int         `json:"starts"`            // number of times that it began or continued
	Began   time.Time   `json:"began,omitzero"`    // time of the first start; zero if never
	Ended   time.Time   `json:"ended,omitzero"`    // end of the last start, unless State is Open
	Failure *Failure    `json:"failure,omitempty"` // error of the last end; nil if missing
	Stages  []StageTime `json:"stages,omitempty"`  // times of the last summary
}

// newRun returns the state of a run from its events.
func newRun(p Plan, events []Event) Run {
	r := Run{Plan: p, State: Planned}
	for _, e := range events {
		r.applyEvent(e)
	}
	return r
}

// endings are the states after the events that end a run. Withdrawing counts as Failed until
// RunDiscarded.
var endings = map[EventKind]State{
	RunDone: Done, RunFailed: Failed, RunStopped: Stopped, RunDiscarded: Discarded, Withdrawing: Failed,
}

// applyEvent updates the state with the next event.
func (r *Run) applyEvent(e Event) {
	switch e.Kind {
	case RunStarted:
		if r.Starts++; r.Starts == 1 {
			r.Began = e.Time
		}
		r.State, r.Failure, r.Ended = Open, nil, time.Time{}
	case StepStarted:
		r.Step = e.Step
	case Summarized:
		r.Stages = e.Stages
	case RunDone, RunFailed, RunStopped, RunDiscarded, Withdrawing:
		r.State, r.Failure, r.Ended = endings[e.Kind], e.Failure, e.Time
	}
}
