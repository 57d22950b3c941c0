package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/assemble/measure"
	"github.com/decamp/decamp/internal/bench/matrix"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

const benchMatrixHelp = `
Measure what a spec asks for: each source into each destination, over each link, by each
transport, async and sync, with so many streams, VMs and copies. Each end is measured alone
first. One row is measured after the other and appended to --rows; killed, the same command
goes on with the row it was at.

The spec is YAML, read strictly; what its keys mean is in docs/benchmarking.md. The VMs have
to be powered off; they are read and not changed. Images are written to the folders of the
spec as decamp migrate writes them, and removed again. With sync every 64 KiB wait until they
are on the medium, as on an NFS export with sync; with the transport nfs the host clones onto
exports of yours that it has mounted, and sync is what they are.

A row has what the kernel counted here: processor time, TCP segments sent again, writes and
%util of the folders' devices; and of the host its disk reads, in samples of 20 s, where it
counts them. With --esxtop they are what esxtop on the hosts says, by SSH, in samples of 5 s:
for rows that are shorter, and for hosts that count nothing. What could not be measured is said
in the row. Rates are in MiB/s, 2^20 bytes.
`

const benchMatrixExamples = `
decamp bench matrix --spec matrix.yaml
decamp bench matrix --spec matrix.yaml --list
decamp bench matrix --spec matrix.yaml --rows rack1.jsonl
decamp bench matrix --spec matrix.yaml --rows rack1.jsonl --esxtop
decamp bench report rack1.jsonl --html rack1.html
decamp advise --rows rack1.jsonl --source ssd --dest nvme --nic 25g
`

type benchMatrixOptions struct {
	login assemble.Login
	spec  string
	rows  string
	list  bool
	top   bool
}

func newBenchMatrix(a *app) *cobra.Command {
	var o benchMatrixOptions
	cmd := &cobra.Command{
		Use: "matrix --spec FILE", Short: "Measure sources, destinations, links and transports", Long: text(benchMatrixHelp + sourceHelp), Example: text(benchMatrixExamples),
		Args: takes(),
		Annotations: exits(append(sourceExits, exit{fault.Conflict, "a VM runs, an MTU is another than the spec's, or another process has rows or records"},
			exit{fault.Full, "no space for an image or a row"}, exit{fault.Transient, "a row failed; the same command tries it again"})...),
		RunE: a.logged(func(cmd *cobra.Command, _ []string) error {
			if o.spec == "" {
				return badUsage(cmd, "--spec is missing")
			}
			return a.benchMatrix(cmd.Context(), o)
		}),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.spec, "spec", "", "`FILE` that says what to measure")
	f.StringVar(&o.rows, "rows", "rows.jsonl", "`FILE` that rows are appended to, and that says which are there")
	f.BoolVar(&o.list, "list", false, "print the rows that would be measured, and measure nothing")
	f.BoolVar(&o.top, "esxtop", false, "have esxtop on the hosts count what is read there, by SSH")
	registerLogin(&o.login, cmd)
	_ = cmd.MarkFlagFilename("spec", "yaml", "yml") // fails for unknown flags only
	return cmd
}

func (a *app) benchMatrix(ctx context.Context, o benchMatrixOptions) (err error) {
	spec, err := planfile.LoadMatrix(o.spec)
	if err != nil {
		return err
	}
	cells := matrix.Cells(spec)
	if o.list {
		return a.listCells(cells)
	}
	state, err := a.StateDir()
	if err != nil {
		return err
	}
	unlock, err := a.lockState(ctx, state) // a landing has a folder there, and records
	if err != nil {
		return err
	}
	defer closing(&err, unlock)
	log, err := matrix.OpenLog(o.rows)
	if err != nil {
		return err
	}
	defer closing(&err, log.Close)
	folder, err := filepath.Abs(filepath.Dir(o.spec))
	if err != nil {
		return err
	}
	b := &measure.Benchmark{Assembler: &a.Assembler, Spec: spec, Folder: folder, Login: o.login, Top: o.top}
	defer closing(&err, b.Leave)
	r := matrix.Runner{Cells: cells, Origin: string(spec.Origin), Log: log, Enter: b.Enter, Measure: b.Measure, Told: a.tellCell}
	if err := r.Run(ctx); err != nil {
		return err
	}
	if !a.json {
		fmt.Fprintf(a.err, "All %d rows are in %s: decamp bench report %s --html report.html\n", len(cells), o.rows, fault.Quote(o.rows))
	}
	return nil
}

func (a *app) listCells(cells []matrix.Cell) error {
	var errs []error
	for _, c := range cells {
		if a.json {
			errs = append(errs, a.print(map[string]any{"name": c.Name(), "vms": c.VMs, "folders": c.Folders}))
		} else {
			fmt.Fprintln(a.out, c.Name())
		}
	}
	return errors.Join(errs...)
}

// tellCell tells of a row when it is there, and for eyes also that it is begun.
func (a *app) tellCell(p matrix.Progress) {
	what := fmt.Sprintf("%d of %d  %s", p.Number, p.Of, p.Cell.Name())
	switch {
	case p.Err != nil:
		a.Warn("%s: %s", what, fault.OneLine(p.Err.Error()))
	case p.Row == nil:
		if !a.json {
			fmt.Fprintf(a.err, "%s …\n", what)
		}
	case a.json:
		_ = a.print(p.Row) // the standard output remembers that it failed
	default:
		had := ""
		if p.Had {
			had = "  (was measured)"
		}
		fmt.Fprintf(a.out, "%s  %.1f MiB/s in %s%s\n", p.Cell.Name(), p.Row.Rate(), duration(p.Row.Duration()), had)
	}
}
