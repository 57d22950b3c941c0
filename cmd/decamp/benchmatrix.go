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
	"github.com/decamp/decamp/internal/units"
)

const benchMatrixHelp = `
Measure what a spec lists: each source to each destination, over each link, by each transport,
async and sync, with several numbers of streams, VMs and copies. By default each end is first
measured alone. Rows are measured one after the other and appended to --rows. If the command
is interrupted, the same command continues with the interrupted row.

The spec is YAML and parsed strictly. docs/benchmarking.md describes its keys. The VMs must be
powered off; they are only read. Images are written to the folders of the spec as decamp
migrate writes them, and then removed. With sync each write of 64 KiB waits for the medium, as
on an NFS export with sync. With the transport nfs the host clones to your NFS exports, which
it must have mounted; the mode is that of the export.

A row has counters of this machine: processor time, retransmitted TCP segments, and the writes
and utilization of the folders' devices. It also has the disk reads of the host, in samples of
20 s, if the host counts them. With --esxtop they are the values of esxtop on the hosts, over
SSH (ssh in source, as in plan files), in samples of 5 s: for short rows, and for hosts without
counters. A row names values that could not be measured. Rates are in MiB/s (2^20 bytes).
`

const benchMatrixExamples = `
decamp bench matrix --spec matrix.yaml --list
decamp bench matrix --spec matrix.yaml --rows rack1.jsonl
decamp bench report rack1.jsonl --html rack1.html
decamp advise --rows rack1.jsonl --source ssd --dest nvme --nic 25g
`

// matrixCommand is decamp bench matrix.
type matrixCommand struct {
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts

	login assemble.Login // login to the source
	spec  string         // path of the spec
	rows  string         // path of the file with rows, which grows
	list  bool           // only list the rows
	top   bool           // count reads with esxtop
	port  uint16         // port of SSH; 0: that of the spec
}

// newBenchMatrix returns the command decamp bench matrix.
func newBenchMatrix(p *program) *cobra.Command {
	mc := &matrixCommand{out: p.out, assembler: p.assembler}
	cmd := &cobra.Command{
		Use: "matrix --spec FILE", Short: "Measure sources, destinations, links and transports", Long: trimHelp(benchMatrixHelp + sourceHelp), Example: trimHelp(benchMatrixExamples),
		Args: exactArgs(),
		Annotations: exitCodes(append(sourceExits, exit{fault.Conflict, "a VM runs, an MTU differs from the spec, or another process uses the rows or the state directory"},
			exit{fault.Full, "no space for an image or a row"}, exit{fault.Transient, "a row failed; the same command retries it"})...),
		RunE: p.withLog(func(cmd *cobra.Command, _ []string) error {
			if mc.spec == "" {
				return badUsage(cmd, "--spec is missing")
			}
			return mc.runMatrix(cmd.Context())
		}),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&mc.spec, "spec", "", "`FILE` with the measurements")
	f.StringVar(&mc.rows, "rows", "rows.jsonl", "`FILE` for the rows; rows in it are not measured again")
	f.BoolVar(&mc.list, "list", false, "print the rows without measuring them")
	f.BoolVar(&mc.top, "esxtop", false, "count reads on the hosts with esxtop, over SSH")
	f.Uint16Var(&mc.port, "ssh-port", 0, "with --esxtop: `PORT` of SSH on the hosts (default source.ssh.port of the spec, otherwise 22)")
	registerLogin(&mc.login, cmd)
	_ = cmd.MarkFlagFilename("spec", "yaml", "yml") // fails for unknown flags only
	return cmd
}

// runMatrix measures all rows that the file of --rows does not have.
func (mc *matrixCommand) runMatrix(ctx context.Context) (err error) {
	spec, err := planfile.LoadMatrix(mc.spec)
	if err != nil {
		return err
	}
	cells := matrix.Cells(spec)
	if mc.list {
		return mc.listCells(cells)
	}
	unlock, err := mc.assembler.LockState(ctx) // a landing has a folder there, and records
	if err != nil {
		return err
	}
	defer joinClose(&err, unlock)
	log, err := matrix.OpenLog(mc.rows)
	if err != nil {
		return err
	}
	defer joinClose(&err, log.Close)
	folder, err := filepath.Abs(filepath.Dir(mc.spec))
	if err != nil {
		return err
	}
	b := &measure.Benchmark{Assembler: mc.assembler, Spec: spec, Folder: folder, Login: mc.login, Top: mc.top, SSHPort: mc.port}
	defer joinClose(&err, b.Leave)
	r := matrix.Runner{Cells: cells, Origin: string(spec.Origin), Log: log, Enter: b.Enter, Measure: b.Measure, Told: mc.printCell}
	if err := r.Run(ctx); err != nil {
		return err
	}
	if !mc.out.json {
		fmt.Fprintf(mc.out.screen, "All %d rows are in %s. Show them with: decamp bench report %s --html report.html\n", len(cells), mc.rows, fault.Quote(mc.rows))
	}
	return nil
}

// listCells prints the name of each row.
func (mc *matrixCommand) listCells(cells []matrix.Cell) error {
	var errs []error
	for _, c := range cells {
		if mc.out.json {
			errs = append(errs, mc.out.printJSON(map[string]any{"name": c.Name(), "vms": c.VMs, "folders": c.Folders}))
		} else {
			fmt.Fprintln(mc.out, c.Name())
		}
	}
	return errors.Join(errs...)
}

// printCell reports a finished row. On a terminal it also reports the start of a row.
func (mc *matrixCommand) printCell(p matrix.Progress) {
	what := fmt.Sprintf("%d of %d  %s", p.Number, p.Total, p.Cell.Name())
	switch {
	case p.Err != nil:
		mc.out.warn("%s: %s", what, fault.OneLine(p.Err.Error()))
	case p.Row == nil:
		if !mc.out.json {
			fmt.Fprintf(mc.out.screen, "%s …\n", what)
		}
	case mc.out.json:
		_ = mc.out.printJSON(p.Row) // the standard output remembers that it failed
	default:
		had := ""
		if p.Known {
			had = "  (measured before)"
		}
		fmt.Fprintf(mc.out, "%s  %.1f MiB/s in %s%s\n", p.Cell.Name(), p.Row.Rate(), units.Duration(p.Row.Duration()), had)
	}
}
