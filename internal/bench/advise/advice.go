package advise

import (
	"cmp"
	"math"
	"slices"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/fault"
)

// An Advisor is a model with the rows to which it was fitted.
type Advisor struct {
	Model *Model      // fitted parameters
	Rows  []bench.Row // measured rows
}

// New fits a model to rows.
func New(rows []bench.Row) (*Advisor, error) {
	m, err := Fit(rows)
	if err != nil {
		return nil, err
	}
	return &Advisor{Model: m, Rows: rows}, nil
}

// Advice is the predicted effect of one change.
type Advice struct {
	Change
	Before float64  `json:"before"`          // predicted MiB/s before the change
	After  float64  `json:"after"`           // predicted MiB/s after the change
	Least  float64  `json:"least"`           // lower bound: After divided by exp(2·Model.spreadOf)
	Most   float64  `json:"most"`            // upper bound: After multiplied by exp(2·Model.spreadOf)
	Rests  []Effect `json:"evidence"`        // measured pairs of the change, the most similar first
	Price  float64  `json:"price,omitempty"` // price in the currency of the caller
}

// Gain returns the relative increase of the rate.
func (a Advice) Gain() float64 { return a.After/a.Before - 1 }

// WhatIf predicts the effect of one change of a setup. An unknown medium or value is
// fault.Invalid.
func (a *Advisor) WhatIf(s bench.Setup, c Change) (Advice, error) {
	changed, err := c.applyTo(s)
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
	// Two standard deviations of the logarithm, as a factor.
	sure := math.Exp(2 * a.Model.spreadOf(c.Variable, a.Rows))
	return Advice{Change: c, Before: before.MiBs, After: after.MiBs, Least: after.MiBs / sure, Most: after.MiBs * sure, Rests: a.supportingPairs(s, c)}, nil
}

// mostRests is the number of pairs to report.
const mostRests = 4

// supportingPairs returns the measured pairs of a change, those with setups most
// similar to s first. Pairs with a sync export do not apply to an async one.
func (a *Advisor) supportingPairs(s bench.Setup, c Change) []Effect {
	var pairs []Effect
	for _, r := range a.Rows {
		if c.Variable.valueIn(r.Setup) == c.Variable.valueIn(s) && (c.Variable == NFS || r.Export == s.Export) {
			pairs = append(pairs, effectsOf(c, r, a.Rows)...)
		}
	}
	slices.SortStableFunc(pairs, func(x, y Effect) int {
		return cmp.Compare(countDifferences(x.Before.Setup, s), countDifferences(y.Before.Setup, s))
	})
	return pairs[:min(len(pairs), mostRests)]
}

// countDifferences returns the number of variables in which two setups differ.
func countDifferences(a, b bench.Setup) (n int) {
	for _, v := range Variables {
		if v.valueIn(a) != v.valueIn(b) {
			n++
		}
	}
	return n
}

// minGainToReport is the relative gain below which a change is within the model's
// error.
const minGainToReport = 0.01

// Steps returns changes in order: each is the one with the largest gain after the
// earlier ones, so that a faster NIC is not proposed before the disk that limits it. It
// ends when no change has a gain.
func (a *Advisor) Steps(s bench.Setup, choices []Change) ([]Advice, error) {
	var steps []Advice
	for {
		best, err := a.bestChange(s, choices)
		if err != nil || best.Change == (Change{}) {
			return steps, err
		}
		steps = append(steps, best)
		if s, err = best.applyTo(s); err != nil {
			return steps, err
		}
	}
}

// bestChange returns the change with the largest gain, or the zero Advice if no gain is
// large enough.
func (a *Advisor) bestChange(s bench.Setup, choices []Change) (best Advice, err error) {
	most := minGainToReport
	for _, c := range choices {
		if c.Variable.valueIn(s) == c.Value {
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

// Choices returns the changes that the published rows contain: an async export, faster
// disks, a faster NIC, jumbo frames.
func Choices() []Change {
	var all []Change
	for _, v := range Variables {
		all = append(all, Change{v, better[v][1]})
	}
	return all
}
