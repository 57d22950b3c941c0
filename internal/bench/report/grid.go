package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/bench"
)

// grid is a table of rates: media in rows, networks in columns.
type grid struct {
	Title   string    // heading
	Columns []string  // labels of the columns
	Rows    []gridRow // rows in the order of their first measurement
}

// gridRow is one line of a grid.
type gridRow struct {
	Name  string // label
	Cells []cell // one per column; zero if not measured
}

// cell is one rate with its rank in the grid.
type cell struct {
	Rate, Name string // formatted rate and name of the row
	Heat       string // 0 to 100 on a logarithmic scale; a linear one would not distinguish rows if one is sync
	Best       bool   // true for the largest rate
}

// newGrids returns a grid of pairs, one of sources alone, and one of destinations
// alone. Grids without rows are omitted.
func newGrids(rows []bench.Row) []grid {
	var pairs, sources, destinations []bench.Row
	for _, r := range rows {
		switch {
		case r.Source == bench.Pattern:
			destinations = append(destinations, r)
		case r.Destination == bench.Null:
			sources = append(sources, r)
		default:
			pairs = append(pairs, r)
		}
	}
	var all []grid
	for _, g := range []struct {
		title string
		rows  []bench.Row
	}{{"From end to end", pairs}, {"The source alone, into nothing", sources}, {"The destination alone, from a computed disk", destinations}} {
		if len(g.rows) > 0 {
			all = append(all, newGrid(g.title, g.rows))
		}
	}
	return all
}

// newGrid returns the grid of rows, which must not be empty.
func newGrid(title string, rows []bench.Row) grid {
	g := grid{Title: title}
	slowest, fastest := rows[0], rows[0]
	setups := map[string]bench.Setup{}
	for _, r := range rows {
		// Any setup of a column determines its position.
		setups[columnLabel(r.Setup)] = r.Setup
		if r.Rate() < slowest.Rate() {
			slowest = r
		}
		if r.Rate() > fastest.Rate() {
			fastest = r
		}
	}
	for name := range setups {
		g.Columns = append(g.Columns, name)
	}
	slices.SortFunc(g.Columns, func(a, b string) int {
		x, y := setups[a], setups[b]
		return cmp.Or(strings.Compare(string(x.Export), string(y.Export)), cmp.Compare(linkSpeed(x), linkSpeed(y)), cmp.Compare(x.MTU, y.MTU))
	})
	for _, r := range rows {
		g.addRow(r, slowest.Rate(), fastest.Rate())
	}
	return g
}

// addRow adds a rate. least and most are the extremes of the grid.
func (g *grid) addRow(r bench.Row, least, most float64) {
	name := rowLabel(r.Setup)
	i := slices.IndexFunc(g.Rows, func(row gridRow) bool { return row.Name == name })
	if i < 0 {
		g.Rows, i = append(g.Rows, gridRow{name, make([]cell, len(g.Columns))}), len(g.Rows)
	}
	k := slices.Index(g.Columns, columnLabel(r.Setup))
	g.Rows[i].Cells[k] = cell{Rate: formatRate(r.Rate()), Name: r.Name(), Heat: heatOf(r.Rate(), least, most), Best: r.Rate() == most}
}

// rowLabel returns the row label of a setup in a grid.
func rowLabel(s bench.Setup) string {
	name := s.Source + " → " + s.Destination
	switch {
	case s.Source == bench.Pattern:
		name = s.Destination
	case s.Destination == bench.Null:
		name = s.Source
	}
	if s.Transport != bench.OverNFS {
		name += " by " + s.Transport.String()
	}
	for _, n := range []struct {
		what  string
		count int
	}{{"stream", s.Streams}, {"VM", s.Together}, {"destination", s.Copies}} {
		if n.count > 0 {
			name += ", " + countOf(n.count, n.what)
		}
	}
	return name
}

// countOf returns a number with its noun in singular or plural.
func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// columnLabel returns the column label of a setup: its network, and "sync" for a sync
// export.
func columnLabel(s bench.Setup) string {
	var parts []string
	if s.NIC != "" {
		parts = append(parts, s.NIC, "MTU "+strconv.Itoa(s.MTU))
	}
	if s.Export == bench.Sync {
		parts = append(parts, "sync")
	}
	return cmp.Or(strings.Join(parts, ", "), "as it comes")
}

// linkSpeed returns the speed of the link in Gbit/s, or 0 without one.
func linkSpeed(s bench.Setup) float64 {
	v, _ := bench.Gigabits(s.NIC) // 0 for a setup without NIC, which comes first
	return v
}

// heatOf returns the position of a rate between the extremes on a logarithmic scale, in
// percent.
func heatOf(v, least, most float64) string {
	if !(least > 0) || most <= least {
		return formatWidth(1)
	}
	return formatWidth(math.Log(v/least) / math.Log(most/least))
}
