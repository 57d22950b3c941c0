package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/advise"
	"github.com/decamp/decamp/internal/fault"
)

const adviseHelp = `
Say what limits the copying of a disk onto an NFS export or a landing, what to change first, and
what each change would give.

The setup is what the bytes pass: what the datastore lies on (--source), what the image lies on
(--dest), the slowest link, the MTU of the whole path, and whether the export answers before it
writes (async, as decamp's own landing does) or after (sync). hdd, ssd and nvme are those of the
published measurements that the model is fitted to; a rate of your own is better: 450MiB/s.

The steps are an order: each is the change that gives most once those above it were made. What
a step is predicted to give is between the two rates shown; they are as far apart as the model
is from the measured pairs of that change, which are printed below. It knows no other load.

With PLAN it says what limits that plan now, as its transfers measure it: which part of the
time each part was busy, and how many times as fast it could be at most until the next one
limits. PLAN is looked for in the state directory, in the database of --db, or at the server of
--server.
`

const adviseExamples = `
decamp advise wave-1
decamp advise --source hdd --dest nvme --nic 1g --nfs sync
decamp advise --source ssd --dest nvme --what-if nic=10g --what-if nic=25g --allocated 2T
decamp advise --source 900MiB/s --dest hdd --nic 10g --prices prices.json
decamp advise --verbose
`

type adviseOptions struct {
	setup     bench.Setup
	export    string
	whatIf    []string
	allocated sizeFlag
	prices    string
	rows      string
}

func newAdvise(a *app) *cobra.Command {
	o, m := adviseOptions{allocated: 19 << 30}, meetingFlags{}
	cmd := &cobra.Command{
		Use: "advise [PLAN]", Short: "Say what limits a copy, and what to change first", Long: text(adviseHelp), Example: text(adviseExamples),
		Args: cobra.MaximumNArgs(1),
		Annotations: exits(exit{fault.NotFound, "no such plan, or a file that was named is not there"},
			exit{fault.Conflict, "nothing of the plan moves that could be measured"},
			exit{fault.Unreachable, "the server or the database cannot be reached"}),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.adviseLive(cmd.Context(), m, args[0])
			}
			return a.advise(o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.setup.Source, "source", "hdd", "what the datastore lies on: hdd, ssd, or a rate such as 450MiB/s")
	f.StringVar(&o.setup.Destination, "dest", "hdd", "what the image lies on: hdd, nvme, or a rate")
	f.StringVar(&o.setup.NIC, "nic", "1g", "the slowest link between them, in Gbit/s")
	f.IntVar(&o.setup.MTU, "mtu", 1500, "bytes of a frame, on the whole path")
	f.StringVar(&o.export, "nfs", "async", "how the NFS server answers: async or sync")
	f.StringArrayVar(&o.whatIf, "what-if", nil, "a change to look at, such as nic=25g; several are looked at one by one (default those of the published measurements, in their best order)")
	f.Var(&o.allocated, "allocated", "bytes to move, for the times")
	f.StringVar(&o.prices, "prices", "", `FILE with what changes cost: {"nic=25g": 420}`)
	f.StringVar(&o.rows, "rows", "", "FILE with rows of your own (JSON, as decamp bench matrix writes them), which the model is fitted to beside the published ones")
	m.register(cmd)
	return cmd
}

func (a *app) advise(o adviseOptions) error {
	if o.setup.Export = bench.Export(o.export); o.setup.Export != bench.Async && o.setup.Export != bench.Sync {
		return fault.New(fault.Invalid, "--nfs %s: want async or sync", o.export)
	}
	rows, err := o.measured()
	if err != nil {
		return err
	}
	advisor, err := advise.New(rows)
	if err != nil {
		return err
	}
	report, err := o.report(advisor)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(report)
	}
	writeAdvice(a.out, report, a.verbose)
	return nil
}

// adviceReport is what advise prints.
type adviceReport struct {
	advise.Prediction
	Name      string            `json:"name"`
	Measured  []bench.Row       `json:"measured,omitempty"` // rows of this very setup
	Allocated int64             `json:"allocated"`
	Ordered   bool              `json:"ordered"` // each step follows on those before it
	Steps     []advise.Advice   `json:"steps"`
	Notes     []string          `json:"notes,omitempty"`
	Model     *advise.Model     `json:"model"`
	HTTPS     advise.HTTPSModel `json:"https"`
	Rows      []bench.Row       `json:"rows"`
}

func (o *adviseOptions) report(a *advise.Advisor) (adviceReport, error) {
	p, err := a.Model.Predict(o.setup)
	if err != nil {
		return adviceReport{}, err
	}
	r := adviceReport{Prediction: p, Name: o.setup.Name(), Allocated: int64(o.allocated), Ordered: len(o.whatIf) == 0, Model: a.Model, Rows: a.Rows}
	for _, row := range a.Rows {
		if row.Setup == o.setup {
			r.Measured = append(r.Measured, row)
		}
	}
	if r.Steps, err = o.steps(a); err != nil {
		return r, err
	}
	r.Notes = notes(r.Steps)
	if r.HTTPS, err = advise.FitHTTPS(bench.Seed().HTTPS.Rows); err != nil {
		return r, err
	}
	return r, o.price(r.Steps)
}

func (o *adviseOptions) steps(a *advise.Advisor) ([]advise.Advice, error) {
	if len(o.whatIf) == 0 {
		return a.Steps(o.setup, advise.Choices())
	}
	var steps []advise.Advice
	for _, s := range o.whatIf {
		c, err := advise.ParseChange(s)
		if err != nil {
			return nil, err
		}
		step, err := a.WhatIf(o.setup, c)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// measured are the published rows, and the user's.
func (o *adviseOptions) measured() ([]bench.Row, error) {
	rows := bench.Seed().Matrix
	if o.rows == "" {
		return rows, nil
	}
	own, err := readRows(o.rows)
	if err != nil {
		return nil, err
	}
	for _, r := range own {
		if r.Modelled() {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// readRows reads a file of rows, as a person or the matrix wrote them.
func readRows(path string) ([]bench.Row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(fault.NotFound, err)
	}
	defer f.Close() // only read
	rows, err := bench.ReadRows(f)
	if err != nil {
		return nil, fault.New(fault.Invalid, "read %s: %w", path, err)
	}
	return rows, nil
}

// price writes into the steps what they cost.
func (o *adviseOptions) price(steps []advise.Advice) error {
	if o.prices == "" {
		return nil
	}
	prices := map[string]float64{}
	if err := readJSON(o.prices, &prices); err != nil {
		return err
	}
	for name, price := range prices {
		if _, err := advise.ParseChange(name); err != nil || price < 0 {
			return fault.New(fault.Invalid, "%s: %q: want a change and what it costs", o.prices, name).WithHint(`{"nic=25g": 420, "source=ssd": 1900}`)
		}
	}
	for i := range steps {
		steps[i].Price = prices[steps[i].String()]
	}
	return nil
}

// notes say what is odd about the rows that steps rest on, and where a step does harm.
func notes(steps []advise.Advice) []string {
	var notes []string
	for _, s := range steps {
		for _, e := range s.Rests {
			for _, r := range []bench.Row{e.Before, e.After} {
				if r.Contradicts() {
					notes = append(notes, fmt.Sprintf("%s was published with %.1f MiB/s, which its own duration of %s contradicts; %.1f is used", r.Name(), r.Wire, duration(r.Duration()), r.Rate()))
				}
			}
		}
		if s.Variable == advise.Frame {
			notes = append(notes, jumboNote())
		}
	}
	slices.Sort(notes)
	return slices.Compact(notes)
}

// jumboNote is what the published rows of /folder say of large frames.
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

// readJSON reads a file that the user wrote. A field that is not known is an error: it would
// have been meant.
func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fault.Wrap(fault.NotFound, err)
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fault.New(fault.Invalid, "read %s: %w", path, err)
	}
	return nil
}
