package advise

import (
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/units"
)

// Report contains the limits of a setup, and the changes to make.
type Report struct {
	Prediction
	Name      string      `json:"name"`               // name of the setup
	Measured  []bench.Row `json:"measured,omitempty"` // rows of the same setup
	Allocated int64       `json:"allocated"`          // bytes to migrate
	Ordered   bool        `json:"ordered"`            // each step includes the earlier ones
	Steps     []Advice    `json:"steps"`              // predicted changes
	Notes     []string    `json:"notes,omitempty"`    // remarks about the rows
	Model     *Model      `json:"model"`              // model of NFS and landing
	HTTPS     HTTPSModel  `json:"https"`              // model of https
	Rows      []bench.Row `json:"rows"`               // rows of the model
}

// Question selects the contents of a report.
type Question struct {
	Setup bench.Setup // current setup
	// changes to examine independently, such as nic=25g; if empty, those of the
	// published measurements in their best order
	Changes   []string
	Allocated int64 // bytes to migrate, for durations
}

// Report returns the prediction, the steps and the supporting rows for a question.
func (a *Advisor) Report(q Question) (Report, error) {
	p, err := a.Model.Predict(q.Setup)
	if err != nil {
		return Report{}, err
	}
	r := Report{Prediction: p, Name: q.Setup.Name(), Allocated: q.Allocated, Ordered: len(q.Changes) == 0, Model: a.Model, Rows: a.Rows}
	for _, row := range a.Rows {
		if row.Setup == q.Setup {
			r.Measured = append(r.Measured, row)
		}
	}
	if r.Steps, err = a.stepsFor(q); err != nil {
		return r, err
	}
	r.Notes = collectNotes(r.Steps)
	r.HTTPS, err = FitHTTPS(bench.Seed().HTTPS.Rows)
	return r, err
}

// stepsFor returns the steps for the changes of the question, or the best order of all
// changes if it has none.
func (a *Advisor) stepsFor(q Question) ([]Advice, error) {
	if len(q.Changes) == 0 {
		return a.Steps(q.Setup, Choices())
	}
	var steps []Advice
	for _, s := range q.Changes {
		c, err := ParseChange(s)
		if err != nil {
			return nil, err
		}
		step, err := a.WhatIf(q.Setup, c)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// collectNotes returns remarks about contradictory rows, and about steps that reduce
// the rate of another transport. Each is listed once.
func collectNotes(steps []Advice) []string {
	var notes []string
	for _, s := range steps {
		for _, e := range s.Rests {
			for _, r := range []bench.Row{e.Before, e.After} {
				if r.Contradicts() {
					notes = append(notes, fmt.Sprintf("%s was published with %.1f MiB/s, which its own duration of %s contradicts; %.1f is used", r.Name(), r.Wire, units.Duration(r.Duration()), r.Rate()))
				}
			}
		}
		// Jumbo frames help NFS, but were slower for https.
		if s.Variable == Frame {
			notes = append(notes, jumboNote())
		}
	}
	slices.Sort(notes)
	return slices.Compact(notes)
}

// jumboNote returns the published result for /folder with jumbo frames.
func jumboNote() string {
	seen := map[bool]bench.HTTPSRow{}
	for _, r := range bench.Seed().HTTPS.Rows {
		if r.Connections > 1 {
			seen[r.MTU > 1500] = r
		}
	}
	small, large := seen[false].Megabits, seen[true].Megabits
	return fmt.Sprintf("an MTU of 9000 is of use to NFS; over https it was seen to do harm: %.0f-%.0f Mbit/s instead of %.0f-%.0f (%s)",
		large[0], large[1], small[0], small[1], bench.Seed().HTTPS.Origin)
}
