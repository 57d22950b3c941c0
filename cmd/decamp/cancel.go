package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/workflow"
)

const cancelHelp = `
Cancel a migration at any point before its VM is published. Changes at the source are
reverted: decamp removes its snapshots, turns change tracking off if it was off, and powers
the VM on if it powered the VM off for the cutover of a warm migration. The copied images and
the record of the run are removed.

If another decamp process executes the run, that process stops within seconds and reverts the
changes. Otherwise this command logs in to the host and reverts them itself. It uses SSH if
the host has a free licence.
`

// cancelCommand is decamp cancel.
type cancelCommand struct {
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	fleet     fleetFlags          // flags of the fleet
	login     assemble.Login      // login to the source
	ssh       assemble.SSHOptions // login to hosts by SSH
}

// newCancel returns the command decamp cancel.
func newCancel(p *program) *cobra.Command {
	cc := &cancelCommand{out: p.out, assembler: p.assembler, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "cancel RUN|PLAN[/VM]", Short: "Cancel a migration or a plan, and revert changes at the source",
		Long: trimHelp(cancelHelp) + "\n\n" + trimHelp(namedHelp) + "\n\n" + trimHelp(sourceHelp), Args: exactArgs("RUN"), Example: "decamp cancel web01-3f9a1c\ndecamp cancel wave-1/db01",
		Annotations: exitCodes(append(slices.Clone(sourceExits[1:]),
			exit{fault.NotFound, "the run, plan or VM does not exist: decamp runs and decamp status list them"},
			exit{fault.Conflict, "the VM is published, or another decamp process is busy and does not accept the command"})...),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			return sendCommandByName(cmd.Context(), cc.out, &cc.fleet, args[0], fleetdb.Cancel, func() error {
				return cc.cancelRun(cmd.Context(), journal.ID(args[0]))
			})
		}),
	}
	cc.fleet.registerFlags(cmd)
	registerSSH(&cc.ssh, cmd.Flags())
	registerLogin(&cc.login, cmd)
	return cmd
}

// cancelRun cancels a run of this state directory. A warm run that another process executes receives a
// command; otherwise the changes of the run are reverted here.
func (cc *cancelCommand) cancelRun(ctx context.Context, id journal.ID) (err error) {
	state, store, run, err := recordedRun(cc.assembler, id)
	switch {
	case err != nil:
		return err
	case run.State == journal.Done:
		return fault.New(fault.Conflict, "run %s is done and its VM is published", id).
			WithHint("decamp rollback %s --withdraw removes it from %s; data written to it is lost", id, run.Plan.Target)
	case run.Plan.Warm && workflow.InUse(state):
		if err := store.SendCommand(id, journal.GiveUp); err != nil {
			return err
		}
		return printCommandEffect(ctx, cc.out, sentCommand{state, store, id, journal.GiveUp})
	}
	p := run.Plan
	m := recordedMove(p)
	m.Login, m.SSH, m.Connections = cc.login, cc.ssh, 1
	w, err := cc.assembler.Open(ctx, m, p.Source)
	if err != nil {
		return err
	}
	defer joinClose(&err, w.Close)
	w.To[0].Plan = p
	return discardRuns(ctx, cc.out, w)
}
