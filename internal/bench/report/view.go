package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/bench"
)

// view contains the data of the page with formatted numbers.
type view struct {
	Unit    string    // unit of all rates
	Sets    []viewSet // sets with their grids and charts
	Filters []filter  // choices for the reader
	Bars    []bar     // rates of all setups
	Table   []line    // all rows
	Notes   []string  // remarks
}

// viewSet is a Set on the page.
type viewSet struct {
	Name    string       // name of the set
	Color   int          // index of a color of the style
	Count   int          // number of rows
	Grids   []grid       // rates as tables
	Effects []viewEffect // effects of all variables except the export
	Sync    []viewEffect // effects of the export option
	Charts  []chart      // curves
}

// colors is the number of colors in the style. Further sets reuse them.
const colors = 6

// newView formats a report for the page.
func newView(r Report) view {
	v := view{Unit: r.Unit, Filters: newFilters(r), Bars: newBars(r), Table: newLines(r), Notes: collectNotes(r)}
	for i, s := range r.Sets {
		set := viewSet{Name: s.Name, Color: i % colors, Count: len(s.Rows), Grids: newGrids(s.Rows), Charts: newCharts(s.Curves)}
		for _, e := range s.Effects {
			if e.Variable == bench.ByExport {
				set.Sync = append(set.Sync, showEffect(e))
			} else {
				set.Effects = append(set.Effects, showEffect(e))
			}
		}
		v.Sets = append(v.Sets, set)
	}
	return v
}

// tags contains the values by which rows are filtered.
type tags struct{ Set, Source, Dest, NIC, MTU, Export, Transport string }

// tagsOf returns the tags of a setup in a set.
func tagsOf(set string, s bench.Setup) tags {
	return tags{set, s.Source, s.Destination, cmp.Or(s.NIC, "none"), cmp.Or(formatNonZero(float64(s.MTU)), "none"), bench.ByExport.Of(s), s.Transport.String()}
}

// filter is a variable with its values in the rows.
type filter struct {
	Key    string   // key of the tags
	Label  string   // label for the reader
	Values []string // values in the order of their first use
}

// newFilters returns the variables that have more than one value.
func newFilters(r Report) []filter {
	all := []filter{{Key: "set", Label: "rows"}, {Key: "source", Label: "source"}, {Key: "dest", Label: "destination"}, {Key: "nic", Label: "NIC"},
		{Key: "mtu", Label: "MTU"}, {Key: "export", Label: "export"}, {Key: "transport", Label: "transport"}}
	for _, s := range r.Sets {
		for _, row := range s.Rows {
			t := tagsOf(s.Name, row.Setup)
			for i, value := range []string{t.Set, t.Source, t.Dest, t.NIC, t.MTU, t.Export, t.Transport} {
				if !slices.Contains(all[i].Values, value) {
					all[i].Values = append(all[i].Values, value)
				}
			}
		}
	}
	return slices.DeleteFunc(all, func(f filter) bool { return len(f.Values) < 2 })
}

// formatRate formats a number with about three digits.
func formatRate(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// formatFactor formats a factor: from 2 as "2.50×", below as "+12.0 %".
func formatFactor(f float64) string {
	if f >= 2 {
		return formatRate(f) + "×"
	}
	return fmt.Sprintf("%+.1f %%", 100*(f-1))
}

// formatWidth formats a share of 0 to 1 as percent for CSS.
func formatWidth(part float64) string { return fmt.Sprintf("%.2f", 100*min(max(part, 0), 1)) }

// bar contains the rates of one setup in all sets.
type bar struct {
	Name   string  // name of the setup
	most   float64 // largest rate, for the order
	Values []value // one per set
}

// value is one rate with the length of its bar.
type value struct {
	tags
	Color       int    // index of the set's color
	Rate        string // formatted rate
	Width       string // length in percent
	Read, Write iops   // requests at the source and the destination
	Doubt       bool   // the reported rate contradicts the duration
}

// iops contains the requests of one end.
type iops struct {
	Seen  bool   // true if they were measured
	Rate  string // requests per second
	Width string // length of the bar in percent
	KiB   string // average size of a request
}

// newBars returns a bar for each setup with a source, the fastest first. Destinations
// alone are much faster, and would make all other bars short.
func newBars(r Report) []bar {
	var most, mostIOPS float64
	for _, s := range r.Sets {
		for _, row := range withSource(s.Rows) {
			most, mostIOPS = max(most, row.Rate()), max(mostIOPS, row.Read.IOPS, row.Written.IOPS)
		}
	}
	var all []bar
	for i, s := range r.Sets {
		for _, row := range withSource(s.Rows) {
			// Setups of several sets share a bar.
			k := slices.IndexFunc(all, func(b bar) bool { return b.Name == row.Name() })
			if k < 0 {
				all, k = append(all, bar{Name: row.Name()}), len(all)
			}
			// The bars are sorted by the fastest set.
			all[k].most = max(all[k].most, row.Rate())
			all[k].Values = append(all[k].Values, value{tags: tagsOf(s.Name, row.Setup), Color: i % colors, Rate: formatRate(row.Rate()),
				Width: formatWidth(row.Rate() / most), Read: showIOPS(row.Read, mostIOPS), Write: showIOPS(row.Written, mostIOPS), Doubt: row.Contradicts()})
		}
	}
	slices.SortStableFunc(all, func(a, b bar) int { return cmp.Compare(b.most, a.most) })
	return all
}

// withSource returns the rows that read a source.
func withSource(rows []bench.Row) []bench.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r bench.Row) bool { return r.Source == bench.Pattern })
}

// isSeen reports whether any value has IOPS.
func (b bar) isSeen() bool {
	return slices.ContainsFunc(b.Values, func(v value) bool { return v.Read.Seen || v.Write.Seen })
}

// kib is the number of bytes of a kibibyte.
const kib = 1 << 10

// showIOPS formats the requests of a device. most is the largest of all rows.
func showIOPS(d bench.Device, most float64) iops {
	if d.IOPS == 0 {
		return iops{}
	}
	s := iops{Seen: true, Rate: fmt.Sprintf("%.0f", d.IOPS), Width: formatWidth(d.IOPS / most)}
	if d.MiBs > 0 {
		s.KiB = fmt.Sprintf("%.0f KiB", d.MiBs*bench.MiB/kib/d.IOPS)
	}
	return s
}

// viewEffect is an effect on the page.
type viewEffect struct {
	Variable, From, To string     // variable with its values before and after
	Median, Range      string     // formatted factors
	Harm               bool       // the rate decreased
	Pairs              []viewPair // pairs of rows that show it
}

// viewPair is a pair of rows that shows an effect.
type viewPair struct {
	Before, After         string // names
	BeforeRate, AfterRate string // formatted rates
	BeforeWidth           string // lengths of the bars in percent
	AfterWidth            string // length of the second bar
	Factor                string // formatted factor
	Harm                  bool   // true if the rate decreased
}

// showEffect formats an effect.
func showEffect(e bench.Effect) viewEffect {
	v := viewEffect{Variable: string(e.Variable), From: e.From, To: e.To, Median: formatFactor(e.MedianFactor()), Harm: e.MedianFactor() < 1}
	if len(e.Pairs) > 1 {
		v.Range = fmt.Sprintf("%s to %s", formatFactor(e.MinFactor()), formatFactor(e.MaxFactor()))
	}
	var most float64
	for _, p := range e.Pairs {
		most = max(most, p.Before.Rate(), p.After.Rate())
	}
	for _, p := range e.Pairs {
		v.Pairs = append(v.Pairs, viewPair{Before: p.Before.Name(), After: p.After.Name(), BeforeRate: formatRate(p.Before.Rate()), AfterRate: formatRate(p.After.Rate()),
			BeforeWidth: formatWidth(p.Before.Rate() / most), AfterWidth: formatWidth(p.After.Rate() / most), Factor: formatFactor(p.Factor()), Harm: p.Factor() < 1})
	}
	return v
}

// line is a row of the table.
type line struct {
	tags
	Color                                         int     // index of the set's color
	Name, Rate, Duration, Size, Read, Write, Busy string  // formatted values of the columns
	CPU, Retransmits, Where                       string  // further columns
	RateValue, SecondsValue                       float64 // numbers for sorting
}

// newLines returns a line for each row of each set.
func newLines(r Report) []line {
	var all []line
	for i, s := range r.Sets {
		for _, row := range s.Rows {
			all = append(all, line{tags: tagsOf(s.Name, row.Setup), Color: i % colors, Name: row.Name(), Rate: formatRate(row.Rate()), RateValue: row.Rate(),
				Duration: formatDuration(row.Duration()), SecondsValue: row.Seconds, Size: formatRate(float64(row.Allocated)/bench.MiB/kib) + " GiB", Read: formatDevice(row.Read),
				Write: formatDevice(row.Written), Busy: formatBusy(row.Written), CPU: formatNonZero(math.Round(row.CPU*10) / 10), Retransmits: formatRetransmits(row), Where: describeConditions(row)})
		}
	}
	return all
}

// formatDuration rounds to seconds, or to 10 ms below 10 s.
func formatDuration(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// formatDevice formats requests and rate of a device, or "" if nothing was measured.
func formatDevice(d bench.Device) string {
	switch {
	case d.IOPS > 0 && d.MiBs > 0:
		return fmt.Sprintf("%.0f/s, %s MiB/s", d.IOPS, formatRate(d.MiBs))
	case d.MiBs > 0:
		return formatRate(d.MiBs) + " MiB/s"
	case d.IOPS > 0:
		return fmt.Sprintf("%.0f/s", d.IOPS)
	}
	return ""
}

// formatBusy formats the utilization of a device, or "".
func formatBusy(d bench.Device) string {
	if d.Busy == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*d.Busy)
}

// describeConditions describes the machine and media of a row, the most important parts
// first.
func describeConditions(r bench.Row) string {
	parts := []string{r.Origin, r.On.Host, r.On.Version, r.On.Commit, r.On.Kernel, r.On.CPU, r.On.NIC, r.On.Storage}
	if r.On.Fill > 0 {
		parts = append(parts, fmt.Sprintf("%.0f %% full", 100*r.On.Fill))
	}
	if r.On.Seed > 0 {
		parts = append(parts, fmt.Sprintf("seed %d", r.On.Seed))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

// collectNotes returns remarks about rows: contradictions, notes of authors, and
// missing measurements. Each is listed once.
func collectNotes(r Report) []string {
	var all []string
	for _, s := range r.Sets {
		for _, row := range s.Rows {
			if row.Contradicts() {
				all = append(all, fmt.Sprintf("%s was reported with %s MiB/s, which contradicts its duration of %s: %s is used", row.Name(), formatRate(row.Wire), formatDuration(row.Duration()), formatRate(row.Rate())))
			} else if row.Note != "" {
				all = append(all, row.Name()+": "+row.Note)
			}
			for key, why := range row.Absent {
				all = append(all, fmt.Sprintf("%s: no %s: %s", s.Name, key, why))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
