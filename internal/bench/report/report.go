// Package report formats rows: as one self-contained HTML file, as JSON, as CSV, and in
// the format of Go benchmarks for benchstat.
//
// All rates are in MiB/s, 2^20 bytes, of the bytes of disks with data; each format
// states that.
package report

import (
	"slices"

	"github.com/decamp/decamp/internal/bench"
)

// Unit describes the unit of rates for people.
const Unit = "MiB/s (2^20 bytes) of allocated bytes"

// A Set is a list of rows from one file, or the published ones.
type Set struct {
	Name    string         `json:"name"`              // name for the legend
	Rows    []bench.Row    `json:"rows"`              // rows with different setups
	Curves  []bench.Curve  `json:"curves,omitempty"`  // curves of the rows
	Effects []bench.Effect `json:"effects,omitempty"` // effects of the rows
}

// A Report compares sets. Effects and curves are within a set, because rows of two
// machines differ in more than one variable.
type Report struct {
	Unit string `json:"unit"` // unit of all rates
	Sets []Set  `json:"sets"` // sets in the order of the report
}

// Published returns the set of published measurements, with curves of other tools.
func Published() Set {
	seed := bench.Seed()
	s := NewSet("published", seed.Matrix)
	s.Curves = append(s.Curves, seed.Curves()...)
	return s
}

// NewSet returns a set with the effects and curves of rows. The last of several rows
// with one setup counts.
func NewSet(name string, rows []bench.Row) Set {
	var last []bench.Row
	for i, r := range rows {
		if !slices.ContainsFunc(rows[i+1:], func(s bench.Row) bool { return s.Setup == r.Setup }) {
			last = append(last, r)
		}
	}
	return Set{Name: name, Rows: last, Effects: bench.Effects(last), Curves: bench.Curves(last)}
}

// New returns a report of sets. The user's own set should be first.
func New(sets ...Set) Report { return Report{Unit: Unit, Sets: sets} }
