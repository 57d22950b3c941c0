// Package report formats rows: as one self-contained HTML file, as JSON, as CSV, and in the format of
// Go benchmarks for benchstat.
//
// All rates are in MiB/s, 2^20 bytes, of the bytes of disks with data; each format states that.
package report

import (
	"slices"

	"github.com/decamp/decamp/internal/bench"
)

// Unit is what rates are in, in words for people.
const Unit = "MiB/s (2^20 bytes) of allocated bytes"

// A Set is a set of rows: those of one file, or the published ones.
type Set struct {
	Name    string         `json:"name"`
	Rows    []bench.Row    `json:"rows"`
	Curves  []bench.Curve  `json:"curves,omitempty"`
	Effects []bench.Effect `json:"effects,omitempty"`
}

// A Report is sets side by side. Effects are looked for within a set: rows of two machines differ
// in more than a variable.
type Report struct {
	Unit string `json:"unit"`
	Sets []Set  `json:"sets"`
}

// Published is the set of what others measured, with its curves of other tools.
func Published() Set {
	seed := bench.Seed()
	s := NewSet("published", seed.Matrix)
	s.Curves = append(s.Curves, seed.Curves()...)
	return s
}

// NewSet finds out what rows prove. Of rows of the same setup the last one counts.
func NewSet(name string, rows []bench.Row) Set {
	var last []bench.Row
	for i, r := range rows {
		if !slices.ContainsFunc(rows[i+1:], func(s bench.Row) bool { return s.Setup == r.Setup }) {
			last = append(last, r)
		}
	}
	return Set{Name: name, Rows: last, Effects: bench.Effects(last), Curves: bench.Curves(last)}
}

// New makes a report of sets, the reader's own first.
func New(sets ...Set) Report { return Report{Unit: Unit, Sets: sets} }
