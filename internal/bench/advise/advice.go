package advise

import (
	"cmp"
	"math"
	"slices"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/fault"
)

// An Advisor is a model with the rows it was fitted to.
type Advisor struct {
	Model *Model
	Rows  []bench.Row
}

// New fits a model to rows.
func New(rows []bench.Row) (*Advisor, error) {
	m, err := Fit(rows)
	if err != nil {
		return nil, err
	}
	return &Advisor{Model: m, Rows: rows}, nil
}

// Advice is what one change would give.
type Advice struct {
	Change
	Before float64  `json:"before"` // MiB/s
	After  float64  `json:"after"`
	Least  float64  `json:"least"` // After is between these two, as far off as the model was of measured pairs, twice
	Most   float64  `json:"most"`
	Rests  []Effect `json:"rests"`           // the measured pairs nearest to it
	Price  float64  `json:"price,omitempty"` // price in the currency of the caller
}

// Gain returns the relative increase.
func (a Advice) Gain() float64 { return a.After/a.Before - 1 }

// WhatIf predicts one change of a setup.
func (a *Advisor) WhatIf(s bench.Setup, c Change) (Advice, error) {
	changed, err := c.apply(s)
	if err != nil {
		return Advice{}, fault.Wrap(fault.Invalid, err)
	}
	before, err := a.Model.Predict(s)
	if err != nil {
		return Advice{}, err
	}
	after, err := a.Model.Predict(changed)
	if err != nil {
		return Advice{}, err
	}
	sure := math.Exp(2 * a.Model.spread(c.Variable, a.Rows))
	return Advice{Change: c, Before: before.MiBs, After: after.MiBs, Least: after.MiBs / sure, Most: after.MiBs * sure, Rests: a.rests(s, c)}, nil
}

// mostRests is how many pairs are worth reading.
const mostRests = 4

// rests returns the measured pairs of this change, those of setups most similar to s first. Pairs with
// a sync export do not apply to an async one.
func (a *Advisor) rests(s bench.Setup, c Change) []Effect {
	var pairs []Effect
	for _, r := range a.Rows {
		if c.Variable.value(r.Setup) == c.Variable.value(s) && (c.Variable == NFS || r.Export == s.Export) {
			pairs = append(pairs, effectsOf(c, r, a.Rows)...)
		}
	}
	slices.SortStableFunc(pairs, func(x, y Effect) int { return cmp.Compare(unlike(x.Before.Setup, s), unlike(y.Before.Setup, s)) })
	return pairs[:min(len(pairs), mostRests)]
}

// unlike counts what two setups have not in common.
func unlike(a, b bench.Setup) (n int) {
	for _, v := range Variables {
		if v.value(a) != v.value(b) {
			n++
		}
	}
	return n
}

// little is a gain below the model's error.
const little = 0.01

// Steps returns changes in order: each is the one with the largest gain after the earlier ones, so that
// a faster NIC is not proposed before the disk that limits it. It ends when no change has a gain.
func (a *Advisor) Steps(s bench.Setup, choices []Change) ([]Advice, error) {
	var steps []Advice
	for {
		best, err := a.best(s, choices)
		if err != nil || best.Change == (Change{}) {
			return steps, err
		}
		steps = append(steps, best)
		if s, err = best.apply(s); err != nil {
			return steps, err
		}
	}
}

// best is the change that gives most now; the zero one if none gives more than a little.
func (a *Advisor) best(s bench.Setup, choices []Change) (best Advice, err error) {
	most := little
	for _, c := range choices {
		if c.Variable.value(s) == c.Value {
			continue
		}
		advice, err := a.WhatIf(s, c)
		switch {
		case err != nil:
			return Advice{}, err
		case advice.Gain() > most:
			best, most = advice, advice.Gain()
		}
	}
	return best, nil
}

// Choices are the changes that the published rows know: an asynchronous export, better disks, a
// faster NIC, larger frames.
func Choices() []Change {
	var all []Change
	for _, v := range Variables {
		all = append(all, Change{v, better[v][1]})
	}
	return all
}
