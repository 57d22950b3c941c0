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
Give a migration up, at any point before its VM is published. The VM is as it was found:
our snapshots are removed and their deltas merged, change tracking is off if it was, and
the VM is powered on if decamp powered it off for the cutover of a warm migration. What
was copied, and the record of the run, are removed.

If a decamp drives the run, it obeys within seconds and undoes it; else this command logs
in to the host and does so itself: by SSH, too, where the host has a free licence.
`

// cancelCommand is decamp cancel.
type cancelCommand struct {
	out       *output
	assembler *assemble.Assembler
	fleet     fleetFlags
	login     assemble.Login
	ssh       assemble.SSHOptions
}

func newCancel(p *program) *cobra.Command {
	cc := &cancelCommand{out: p.out, assembler: p.assembler, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "cancel RUN|PLAN[/VM]", Short: "Give a migration or a plan up, and leave VMs as they were found",
		Long: trimHelp(cancelHelp) + "\n\n" + trimHelp(namedHelp) + "\n\n" + trimHelp(sourceHelp), Args: exactArgs("RUN"), Example: "decamp cancel web01-3f9a1c\ndecamp cancel wave-1/db01",
		Annotations: exitCodes(append(slices.Clone(sourceExits[1:]),
			exit{fault.NotFound, "there is no such run, plan or VM: decamp runs and decamp status list them"},
			exit{fault.Conflict, "the VM is published, or a decamp is at work that does not take the order"})...),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			return giveOrderByName(cmd.Context(), cc.out, &cc.fleet, args[0], fleetdb.Cancel, func() error {
				return cc.cancelRun(cmd.Context(), journal.ID(args[0]))
			})
		}),
	}
	cc.fleet.registerFlags(cmd)
	registerSSH(&cc.ssh, cmd.Flags())
	registerLogin(&cc.login, cmd)
	return cmd
}

func (cc *cancelCommand) cancelRun(ctx context.Context, id journal.ID) (err error) {
	state, store, run, err := recordedRun(cc.assembler, id)
	switch {
	case err != nil:
		return err
	case run.State == journal.Done:
		return fault.New(fault.Conflict, "run %s is done and its VM published", id).WithHint("remove the VM from %s by hand if it is not wanted", run.Plan.Target)
	case run.Plan.Warm && workflow.InUse(state):
		if err := store.Give(id, journal.GiveUp); err != nil {
			return err
		}
		return printOrder(cc.out, id, journal.GiveUp, true)
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
