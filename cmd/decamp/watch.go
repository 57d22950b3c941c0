package main

import (
	"github.com/spf13/cobra"
)

const watchHelp = `
Follow a plan until it ends. It prints a line for each VM that begins, progresses, ends or
fails, and the progress of the plan every ten seconds. On a terminal it shows a bar for each
running VM and the progress of the plan instead. With --json each change is an object.
The exit code is that of plan run: 0 if all VMs are published or were withdrawn. The plan
continues after the end of this command.

PLAN is looked up in the state directory, in the database of --db, or at the server of
--server.
`

const watchExamples = `
decamp watch wave-1
decamp watch wave-1 --json | jq -c 'select(.vm.state == "failed")'
`

// newWatch returns the command decamp watch.
func newWatch(p *program) *cobra.Command {
	fleet := fleetFlags{assembler: p.assembler}
	cmd := &cobra.Command{
		Use: "watch PLAN", Short: "Follow a plan until it ends", Long: trimHelp(watchHelp), Example: trimHelp(watchExamples),
		Args: exactArgs("PLAN"), Annotations: exitCodes(commandExits...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) (err error) {
			c, closeControl, err := fleet.openControl(cmd.Context())
			if err != nil {
				return err
			}
			defer joinClose(&err, closeControl)
			return followPlan(cmd.Context(), p.out, c, args[0])
		}),
	}
	fleet.registerFlags(cmd)
	return cmd
}
