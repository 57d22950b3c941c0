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

// grid is the matrix as a table: what the disks lie on down, the network across.
type grid struct {
	Title   string
	Columns []string
	Rows    []gridRow
}

type gridRow struct {
	Name  string
	Cells []cell
}

// cell is one rate, and how it stands among the others of the grid.
type cell struct {
	Rate, Name string
	Heat       string // 0 to 100, by the logarithm: a sync row would make all others the same
	Best       bool
}

// grids are one for the pairs, and one for each end alone.
func grids(rows []bench.Row) []grid {
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

func newGrid(title string, rows []bench.Row) grid {
	g := grid{Title: title}
	least, most := rows[0], rows[0]
	setups := map[string]bench.Setup{}
	for _, r := range rows {
		setups[across(r.Setup)] = r.Setup
		if r.Rate() < least.Rate() {
			least = r
		}
		if r.Rate() > most.Rate() {
			most = r
		}
	}
	for name := range setups {
		g.Columns = append(g.Columns, name)
	}
	slices.SortFunc(g.Columns, func(a, b string) int {
		x, y := setups[a], setups[b]
		return cmp.Or(strings.Compare(string(x.Export), string(y.Export)), cmp.Compare(speed(x), speed(y)), cmp.Compare(x.MTU, y.MTU))
	})
	for _, r := range rows {
		g.put(r, least.Rate(), most.Rate())
	}
	return g
}

func (g *grid) put(r bench.Row, least, most float64) {
	name := down(r.Setup)
	i := slices.IndexFunc(g.Rows, func(row gridRow) bool { return row.Name == name })
	if i < 0 {
		g.Rows, i = append(g.Rows, gridRow{name, make([]cell, len(g.Columns))}), len(g.Rows)
	}
	k := slices.Index(g.Columns, across(r.Setup))
	g.Rows[i].Cells[k] = cell{Rate: rate(r.Rate()), Name: r.Name(), Heat: heat(r.Rate(), least, most), Best: r.Rate() == most}
}

// down returns the row label of a setup in a grid.
func down(s bench.Setup) string {
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
			name += ", " + many(n.count, n.what)
		}
	}
	return name
}

// many is a count with its noun.
func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// across returns the column label: the network, and a sync export.
func across(s bench.Setup) string {
	var parts []string
	if s.NIC != "" {
		parts = append(parts, s.NIC, "MTU "+strconv.Itoa(s.MTU))
	}
	if s.Export == bench.Sync {
		parts = append(parts, "sync")
	}
	return cmp.Or(strings.Join(parts, ", "), "as it comes")
}

func speed(s bench.Setup) float64 {
	v, _ := bench.Gigabits(s.NIC) // none has no NIC, and comes first
	return v
}

// heat is where a rate stands between the least and the most, by their logarithms.
func heat(v, least, most float64) string {
	if !(least > 0) || most <= least {
		return width(1)
	}
	return width(math.Log(v/least) / math.Log(most/least))
}
