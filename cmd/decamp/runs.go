package main

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/plan"
)

const runsHelp = `
List the migrations that the state directory remembers: what they move, where each one
stands, and why it stopped. An open run is under way, or was killed; either way the
command that began it continues it.
`

const runsExamples = `
decamp runs
decamp runs --json | jq '.runs[] | select(.state == "failed").failure'
`

func newRuns(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "runs",
		Short:             "List the migrations begun here",
		Long:              text(runsHelp),
		Example:           text(runsExamples),
		Args:              takes(),
		Annotations:       exits(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              a.logged(func(*cobra.Command, []string) error { return a.listRuns() }),
	}
}

func (a *app) listRuns() error {
	dir, err := a.stateDir()
	if err != nil {
		return err
	}
	runs, err := plan.NewStore(dir).Runs()
	if err != nil {
		return err
	}
	if a.json {
		return a.print(struct {
			Runs []plan.Run `json:"runs"`
		}{append([]plan.Run{}, runs...)})
	}
	if len(runs) == 0 {
		_, err := fmt.Fprintf(a.out, "No runs in %s.\n", dir)
		return err
	}
	writeRuns(a, runs)
	return nil
}

func writeRuns(a *app, runs []plan.Run) {
	t := newTable("RUN", "VM", "STATE", "STEP", "STARTS", "BEGAN", "TARGET", "WHY")
	t.alignRight(4)
	for _, r := range runs {
		why := ""
		if r.Failure != nil && r.State == plan.Failed {
			why = plain(r.Failure.Text)
		}
		t.add(string(r.Plan.ID), plain(r.Plan.VM.Name), string(r.State), cmp.Or(r.Step, "-"), strconv.Itoa(r.Starts),
			r.Began.Local().Format(time.DateTime), r.Plan.Target, why)
	}
	t.write(a.out)
}
