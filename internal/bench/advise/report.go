package advise

import (
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/units"
)

// Report is what limits a setup, and what to change.
type Report struct {
	Prediction
	Name      string      `json:"name"`
	Measured  []bench.Row `json:"measured,omitempty"` // rows of this very setup
	Allocated int64       `json:"allocated"`
	Ordered   bool        `json:"ordered"` // each step follows on those before it
	Steps     []Advice    `json:"steps"`
	Notes     []string    `json:"notes,omitempty"`
	Model     *Model      `json:"model"`
	HTTPS     HTTPSModel  `json:"https"`
	Rows      []bench.Row `json:"rows"`
}

// Question is what a report answers.
type Question struct {
	Setup     bench.Setup
	Changes   []string // changes to examine one by one, such as nic=25g; by default those of the published measurements, in their best order
	Allocated int64    // bytes to move, for the times
}

// Report answers a question.
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
	if r.Steps, err = a.steps(q); err != nil {
		return r, err
	}
	r.Notes = notes(r.Steps)
	r.HTTPS, err = FitHTTPS(bench.Seed().HTTPS.Rows)
	return r, err
}

func (a *Advisor) steps(q Question) ([]Advice, error) {
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

// notes returns irregularities of the rows behind the steps, and steps that reduce the rate.
func notes(steps []Advice) []string {
	var notes []string
	for _, s := range steps {
		for _, e := range s.Rests {
			for _, r := range []bench.Row{e.Before, e.After} {
				if r.Contradicts() {
					notes = append(notes, fmt.Sprintf("%s was published with %.1f MiB/s, which its own duration of %s contradicts; %.1f is used", r.Name(), r.Wire, units.Duration(r.Duration()), r.Rate()))
				}
			}
		}
		if s.Variable == Frame {
			notes = append(notes, jumboNote())
		}
	}
	slices.Sort(notes)
	return slices.Compact(notes)
}

// jumboNote returns what the published rows of /folder say of large frames.
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
