package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
)

const runsHelp = `
List the migrations in the state directory: their VMs, their states, and why they stopped. An
open run is running or was killed; the command that began it continues it. Below the table are
changes on hosts that decamp has not reverted, because it was killed or the host refused.
`

const runsExamples = `
decamp runs
decamp runs --json | jq '.runs[] | select(.state == "failed").failure'
`

// runsCommand is decamp runs.
type runsCommand struct {
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
}

// newRuns returns the command decamp runs.
func newRuns(p *program) *cobra.Command {
	rc := &runsCommand{out: p.out, assembler: p.assembler}
	return &cobra.Command{
		Use:               "runs",
		Short:             "List the migrations of this state directory",
		Long:              trimHelp(runsHelp),
		Example:           trimHelp(runsExamples),
		Args:              exactArgs(),
		Annotations:       exitCodes(exit{fault.Corrupt, "a record cannot be read; the other records are listed"}),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              p.withLog(func(*cobra.Command, []string) error { return rc.runRuns() }),
	}
}

// runRuns prints the runs and the changes on hosts. The error has unreadable records.
func (rc *runsCommand) runRuns() error {
	rc.assembler.ReadsState = true
	dir, err := rc.assembler.StateDir()
	if err != nil {
		return err
	}
	runs, err := journal.NewStore(dir).Runs()
	if err != nil {
		return err
	}
	left, unread := cleanup.NewStore(dir).ListLeft()
	if rc.out.json {
		return errors.Join(rc.out.printJSON(struct {
			Runs      []journal.Run    `json:"runs"`
			Leftovers []cleanup.Record `json:"leftovers"` // on hosts
		}{append([]journal.Run{}, runs...), append([]cleanup.Record{}, left...)}), unread)
	}
	if len(runs) == 0 {
		fmt.Fprintf(rc.out, "No runs in %s.\n", dir)
	} else {
		writeRuns(rc.out, runs)
	}
	writeLeftovers(rc.out, left)
	return unread
}

// writeRuns prints a table of the runs.
func writeRuns(w io.Writer, runs []journal.Run) {
	t := newTable("RUN", "VM", "STATE", "STEP", "STARTS", "BEGAN", "TARGET", "REASON")
	t.alignRight(4)
	for _, r := range runs {
		why := ""
		if r.Failure != nil && r.State == journal.Failed {
			why = fault.Printable(r.Failure.Text)
		}
		t.addRow(string(r.Plan.ID), fault.Printable(r.Plan.VM.Name), string(r.State), cmp.Or(r.Step, "-"), strconv.Itoa(r.Starts),
			r.Began.Local().Format(time.DateTime), r.Plan.Target, why)
	}
	t.writeTo(w)
}

// writeLeftovers prints the changes on hosts that are not reverted.
func writeLeftovers(w io.Writer, list []cleanup.Record) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\nChanges on hosts that are not reverted; the next migration from the host or decamp clean URL reverts them:\n\n")
	t := newTable("SERVER", "HOST", "CHANGE", "SINCE", "MANUAL COMMAND")
	for _, r := range list {
		t.addRow(fault.Printable(r.Server), fault.Printable(string(r.Host)), fault.Printable(r.Text), r.Since.Local().Format(time.DateTime), fault.Printable(r.ManualCommand))
	}
	t.writeTo(w)
}
