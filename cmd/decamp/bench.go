package main

import (
	"github.com/spf13/cobra"
)

const benchHelp = `
Measure transports of disks, one after the other, and report the measurements.

matrix measures combinations of source, destination, link, MTU, sync mode, transport, streams
and parallel VMs. report compares its rows with the published ones.
`

const benchExamples = `
decamp bench matrix --spec matrix.yaml --rows rows.jsonl
decamp bench report rows.jsonl --html report.html
`

// newBench returns the command decamp bench with its subcommands.
func newBench(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "bench COMMAND",
		Short:       "Measure transports of disks, and report the measurements",
		Long:        trimHelp(benchHelp),
		Example:     trimHelp(benchExamples),
		Annotations: exitCodes(),
		Args:        noSuchCommand,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchMatrix(p), newBenchReport(p))
	return cmd
}
