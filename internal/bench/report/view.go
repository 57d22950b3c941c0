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

// view is what the page shows, with every number in the words it has there.
type view struct {
	Unit    string
	Sets    []viewSet
	Filters []filter
	Bars    []bar
	Table   []line
	Notes   []string
}

// viewSet is a Set on the page.
type viewSet struct {
	Name    string
	Color   int // index of a color of the style
	Count   int
	Grids   []grid
	Effects []viewEffect // effects of all variables except the export
	Sync    []viewEffect
	Charts  []chart
}

// colors is how many the style has; sets beyond them begin again.
const colors = 6

func newView(r Report) view {
	v := view{Unit: r.Unit, Filters: filters(r), Bars: bars(r), Table: lines(r), Notes: notes(r)}
	for i, s := range r.Sets {
		set := viewSet{Name: s.Name, Color: i % colors, Count: len(s.Rows), Grids: grids(s.Rows), Charts: charts(s.Curves)}
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

// tags are what a row is chosen by.
type tags struct{ Set, Source, Dest, NIC, MTU, Export, Transport string }

func tagsOf(set string, s bench.Setup) tags {
	return tags{set, s.Source, s.Destination, cmp.Or(s.NIC, "none"), cmp.Or(some(float64(s.MTU)), "none"), bench.ByExport.Of(s), s.Transport.String()}
}

// filter is a variable with the values that rows have.
type filter struct {
	Key    string // key of the tags
	Label  string
	Values []string
}

// filters are those that have something to choose.
func filters(r Report) []filter {
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

// rate is a number for people: three digits or so.
func rate(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// times is a factor as people say it.
func times(f float64) string {
	if f >= 2 {
		return rate(f) + "×"
	}
	return fmt.Sprintf("%+.1f %%", 100*(f-1))
}

// width is a part as CSS has it: 0 to 100, in percent.
func width(part float64) string { return fmt.Sprintf("%.2f", 100*min(max(part, 0), 1)) }

// bar is the rates of one setup, in each set that has it.
type bar struct {
	Name   string
	most   float64
	Values []value
}

// value is one rate, and how far its bar goes.
type value struct {
	tags
	Color       int
	Rate        string
	Width       string
	Read, Write iops
	Doubt       bool // the reported rate contradicts the duration
}

// iops is what one end was seen to do, if it was.
type iops struct {
	Seen  bool
	Rate  string // a second
	Width string
	KiB   string // average size of a request
}

// bars are all setups that read a source, the fastest first. What a destination takes alone would
// make all others short.
func bars(r Report) []bar {
	var most, mostIOPS float64
	for _, s := range r.Sets {
		for _, row := range reading(s.Rows) {
			most, mostIOPS = max(most, row.Rate()), max(mostIOPS, row.Read.IOPS, row.Written.IOPS)
		}
	}
	var all []bar
	for i, s := range r.Sets {
		for _, row := range reading(s.Rows) {
			k := slices.IndexFunc(all, func(b bar) bool { return b.Name == row.Name() })
			if k < 0 {
				all, k = append(all, bar{Name: row.Name()}), len(all)
			}
			all[k].most = max(all[k].most, row.Rate())
			all[k].Values = append(all[k].Values, value{tags: tagsOf(s.Name, row.Setup), Color: i % colors, Rate: rate(row.Rate()),
				Width: width(row.Rate() / most), Read: showIOPS(row.Read, mostIOPS), Write: showIOPS(row.Written, mostIOPS), Doubt: row.Contradicts()})
		}
	}
	slices.SortStableFunc(all, func(a, b bar) int { return cmp.Compare(b.most, a.most) })
	return all
}

func reading(rows []bench.Row) []bench.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r bench.Row) bool { return r.Source == bench.Pattern })
}

// Seen reports whether any value has IOPS.
func (b bar) Seen() bool {
	return slices.ContainsFunc(b.Values, func(v value) bool { return v.Read.Seen || v.Write.Seen })
}

const kib = 1 << 10

func showIOPS(d bench.Device, most float64) iops {
	if d.IOPS == 0 {
		return iops{}
	}
	s := iops{Seen: true, Rate: fmt.Sprintf("%.0f", d.IOPS), Width: width(d.IOPS / most)}
	if d.MiBs > 0 {
		s.KiB = fmt.Sprintf("%.0f KiB", d.MiBs*bench.MiB/kib/d.IOPS)
	}
	return s
}

// viewEffect is an effect on the page.
type viewEffect struct {
	Variable, From, To string
	Median, Range      string
	Harm               bool // the rate decreased
	Pairs              []viewPair
}

// viewPair is a pair that proves an effect.
type viewPair struct {
	Before, After         string // names
	BeforeRate, AfterRate string
	BeforeWidth           string
	AfterWidth            string
	Factor                string
	Harm                  bool
}

func showEffect(e bench.Effect) viewEffect {
	v := viewEffect{Variable: string(e.Variable), From: e.From, To: e.To, Median: times(e.Median()), Harm: e.Median() < 1}
	if len(e.Pairs) > 1 {
		v.Range = fmt.Sprintf("%s to %s", times(e.Least()), times(e.Most()))
	}
	var most float64
	for _, p := range e.Pairs {
		most = max(most, p.Before.Rate(), p.After.Rate())
	}
	for _, p := range e.Pairs {
		v.Pairs = append(v.Pairs, viewPair{Before: p.Before.Name(), After: p.After.Name(), BeforeRate: rate(p.Before.Rate()), AfterRate: rate(p.After.Rate()),
			BeforeWidth: width(p.Before.Rate() / most), AfterWidth: width(p.After.Rate() / most), Factor: times(p.Factor()), Harm: p.Factor() < 1})
	}
	return v
}

// line is a row of the table of all.
type line struct {
	tags
	Color                                       int
	Name, Rate, Lasted, Size, Read, Write, Busy string
	CPU, Retransmits, Where                     string
	RateValue, SecondsValue                     float64
}

func lines(r Report) []line {
	var all []line
	for i, s := range r.Sets {
		for _, row := range s.Rows {
			all = append(all, line{tags: tagsOf(s.Name, row.Setup), Color: i % colors, Name: row.Name(), Rate: rate(row.Rate()), RateValue: row.Rate(),
				Lasted: lasted(row.Duration()), SecondsValue: row.Seconds, Size: rate(float64(row.Allocated)/bench.MiB/kib) + " GiB", Read: device(row.Read),
				Write: device(row.Written), Busy: busy(row.Written), CPU: some(math.Round(row.CPU*10) / 10), Retransmits: retransmits(row), Where: where(row)})
		}
	}
	return all
}

func lasted(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func device(d bench.Device) string {
	switch {
	case d.IOPS > 0 && d.MiBs > 0:
		return fmt.Sprintf("%.0f/s, %s MiB/s", d.IOPS, rate(d.MiBs))
	case d.MiBs > 0:
		return rate(d.MiBs) + " MiB/s"
	case d.IOPS > 0:
		return fmt.Sprintf("%.0f/s", d.IOPS)
	}
	return ""
}

func busy(d bench.Device) string {
	if d.Busy == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*d.Busy)
}

// where describes the machine and media of a row, the most important parts first.
func where(r bench.Row) string {
	parts := []string{r.Origin, r.On.Host, r.On.Version, r.On.Commit, r.On.Kernel, r.On.CPU, r.On.NIC, r.On.Storage}
	if r.On.Fill > 0 {
		parts = append(parts, fmt.Sprintf("%.0f %% full", 100*r.On.Fill))
	}
	if r.On.Seed > 0 {
		parts = append(parts, fmt.Sprintf("seed %d", r.On.Seed))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

// notes returns conditions for the use of the figures.
func notes(r Report) []string {
	var all []string
	for _, s := range r.Sets {
		for _, row := range s.Rows {
			if row.Contradicts() {
				all = append(all, fmt.Sprintf("%s was reported with %s MiB/s, which contradicts its duration of %s: %s is used", row.Name(), rate(row.Wire), lasted(row.Duration()), rate(row.Rate())))
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
