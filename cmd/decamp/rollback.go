package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/server"
)

const rollbackHelp = `
Roll back a migration. For a VM that is not published, decamp removes its images and
snapshots, restores change tracking, and powers the VM on if it had powered the VM off. For a
PLAN it does that for all such VMs; published VMs stay.

--withdraw also rolls back a published VM, one VM at a time. The VM and everything that decamp
created for it is removed from its target. Then the source VM is powered on, if decamp had
shut it down. Data that was written to the published VM is lost. A VM that runs at its target
is not withdrawn.

RUN is one VM that decamp migrate migrated from this machine; decamp runs lists them. PLAN/VM
and RUN behave the same; a run of a plan means its VM of the plan. The process that executes
the plan rolls such a VM back: decamp plan run, or a server.
`

// rollbackCommand is decamp rollback.
type rollbackCommand struct {
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	fleet     fleetFlags          // flags of the fleet
	login     assemble.Login      // login to the source
	withdraw  bool                // also roll back a published VM
}

// newRollback returns the command decamp rollback.
func newRollback(p *program) *cobra.Command {
	rb := &rollbackCommand{out: p.out, assembler: p.assembler, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "rollback PLAN[/VM]|RUN", Short: "Discard unpublished VMs, or withdraw a published VM",
		Long: trimHelp(rollbackHelp) + "\n\n" + trimHelp(namedHelp), Args: exactArgs("PLAN or RUN"),
		Example:     "decamp rollback wave-1\ndecamp rollback wave-1/db01\ndecamp rollback wave-1/db01 --withdraw\ndecamp rollback web01-3f2a1c --withdraw",
		Annotations: exitCodes(append(slices.Clone(commandExits), exit{fault.Invalid, "invalid usage, such as --withdraw with a whole plan"})...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			return rb.runRollback(cmd.Context(), args[0])
		}),
	}
	cmd.Flags().BoolVar(&rb.withdraw, "withdraw", false, "with one VM: also roll back a published VM; data written to it is lost")
	rb.fleet.registerFlags(cmd)
	registerLogin(&rb.login, cmd)
	return cmd
}

// runRollback rolls back what name names: a plan, a VM of a plan, or a run.
func (rb *rollbackCommand) runRollback(ctx context.Context, name string) (err error) {
	c, closeControl, err := rb.fleet.openControl(ctx)
	if err != nil {
		return err
	}
	planName, vmName, isRun, err := server.ResolveName(ctx, c, name)
	if err == nil && isRun {
		planName, vmName, err = server.VMOfRun(ctx, c, name)
	}
	if err == nil && planName == "" {
		if err := closeControl(); err != nil { // the run's state is opened alone
			return err
		}
		return rb.rollBackRun(ctx, journal.ID(name))
	}
	defer joinClose(&err, closeControl)
	switch {
	case err != nil:
		return err
	case !rb.withdraw:
		return sendCommand(ctx, rb.out, c, name, planName, vmName, fleetdb.Rollback)
	case vmName == "":
		return fault.New(fault.Invalid, "--withdraw requires one VM, not plan %s", planName).
			WithHint("run decamp rollback %s/VM --withdraw; list the VMs with decamp status %s --all", fault.Quote(planName), fault.Quote(planName))
	}
	return sendCommand(ctx, rb.out, c, name, planName, vmName, fleetdb.Withdraw)
}

// rollBackRun rolls back a run that belongs to no plan.
func (rb *rollbackCommand) rollBackRun(ctx context.Context, id journal.ID) (err error) {
	state, err := rb.assembler.StateDir()
	if err != nil {
		return err
	}
	run, err := journal.NewStore(state).Run(id)
	switch {
	case fault.Is(err, fault.NotFound):
		return fault.New(fault.NotFound, "plan or run %q does not exist", id).WithHint("list plans with decamp status, and runs with decamp runs")
	case err != nil:
		return err
	case run.State == journal.Done && !rb.withdraw:
		return fault.New(fault.Conflict, "VM %s of run %s is published", run.Plan.VM.Name, id).
			WithHint("decamp rollback %s --withdraw removes it from %s; data written to it is lost", id, run.Plan.Target)
	}
	p := run.Plan
	m := recordedMove(p)
	m.Login = rb.login
	w, err := rb.assembler.Open(ctx, m, p.Source)
	if err != nil {
		return err
	}
	defer joinClose(&err, w.Close)
	d := w.To[0]
	d.Plan = p
	shown := newProgress(rb.out, runNamesOf(w))
	w.Shown = shown.HandleEvent
	err = w.Migrator.Rollback(ctx, id, w.RigOf(d))
	shown.Close()
	if err != nil {
		return err
	}
	if rb.out.json {
		return rb.out.printJSON(map[string]journal.ID{"rolledBack": id})
	}
	_, err = fmt.Fprintf(rb.out, "Run %s is rolled back, and its VM is removed from %s.\n", id, p.Target)
	return err
}
