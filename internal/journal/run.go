package journal

import "time"

// State is the state of a run according to its journal.
type State string

const (
	Planned   State = "planned" // not begun
	Open      State = "open"    // running, or interrupted without a word (a crash)
	Stopped   State = "stopped" // interrupted on request
	Failed    State = "failed"
	Done      State = "done"
	Discarded State = "discarded"
)

// Run is one execution of a plan.
type Run struct {
	Plan    Plan      `json:"plan"`
	State   State     `json:"state"`
	Step    string    `json:"step,omitempty"` // the last one that began
	Starts  int       `json:"starts"`         // how often it began or continued
	Began   time.Time `json:"began,omitzero"`
	Ended   time.Time `json:"ended,omitzero"` // end of the last start, unless State is Open
	Failure *Failure  `json:"failure,omitempty"`
	Stages  []Stage   `json:"stages,omitempty"`
}

// newRun returns the state of a run from its events.
func newRun(p Plan, events []Event) Run {
	r := Run{Plan: p, State: Planned}
	for _, e := range events {
		r.applyEvent(e)
	}
	return r
}

var endings = map[EventKind]State{
	RunDone: Done, RunFailed: Failed, RunStopped: Stopped, RunDiscarded: Discarded, Withdrawing: Failed,
}

func (r *Run) applyEvent(e Event) {
	switch e.Kind {
	case RunBegan:
		if r.Starts++; r.Starts == 1 {
			r.Began = e.Time
		}
		r.State, r.Failure, r.Ended = Open, nil, time.Time{}
	case StepBegan:
		r.Step = e.Step
	case Summarized:
		r.Stages = e.Stages
	case RunDone, RunFailed, RunStopped, RunDiscarded, Withdrawing:
		r.State, r.Failure, r.Ended = endings[e.Kind], e.Failure, e.Time
	}
}
