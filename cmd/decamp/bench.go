package main

import (
	"github.com/spf13/cobra"
)

const benchHelp = `
Measure ways to move disks, one after the other, and show what the measurements prove.

matrix measures: source, destination, link, MTU, sync, transport, streams and what goes at a
time. report makes of its rows one file to look at, beside the published ones.
`

const benchExamples = `
decamp bench matrix --spec matrix.yaml --rows rows.jsonl
decamp bench report rows.jsonl --html report.html
`

func newBench(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "bench COMMAND",
		Short:       "Measure ways to move disks, and show what that proves",
		Long:        trimHelp(benchHelp),
		Example:     trimHelp(benchExamples),
		Annotations: exitCodes(),
		Args:        noSuchCommand,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchMatrix(p), newBenchReport(p))
	return cmd
}
