package main

import (
	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/workflow"
)

const resumeHelp = `
Have a plan, or one VM of it, go on after decamp pause, or after decamp stopped asking a source
that had refused the password. A warm migration that was begun by decamp migrate goes on with
rounds.
`

const retryHelp = `
Have what failed of a plan, or was given up, be tried again, from where it stopped: what is
proven of the images is not copied again. VMs that are done, or under way, are left alone.
`

func newResume(p *program) *cobra.Command {
	return newOrder(p, "resume", "Let a plan, a VM or a warm migration go on", resumeHelp, fleetdb.GoOn, journal.GoOn)
}

func newRetry(p *program) *cobra.Command {
	return newPlanOrder(p, "retry", "Try again what failed of a plan", retryHelp, fleetdb.Retry)
}

// newPlanOrder is a command that gives an order that only plans take.
func newPlanOrder(p *program, name, short, long string, o fleetdb.Order) *cobra.Command {
	fleet := fleetFlags{assembler: p.assembler}
	cmd := &cobra.Command{
		Use: name + " PLAN[/VM]", Short: short, Long: trimHelp(long) + "\n\n" + trimHelp(namedHelp), Args: exactArgs("PLAN"),
		Example:     "decamp " + name + " wave-1\ndecamp " + name + " wave-1/db01",
		Annotations: exitCodes(ordersExits...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			return giveOrderByName(cmd.Context(), p.out, &fleet, args[0], o, func() error {
				return fault.New(fault.NotFound, "there is no plan %q", args[0]).WithHint("decamp status lists them; what decamp migrate began is continued by the same command")
			})
		}),
	}
	fleet.registerFlags(cmd)
	return cmd
}

const cutoverHelp = `
Have a warm migration cut over: the round under way, if any, is completed, or another is
done if the last one began more than a minute ago; then the VM is shut down, what changed
last is copied, and the image is proven and published.

The process that drives the run obeys within seconds. If none does, the order is kept until
the run is continued.
`

const pauseHelp = `
Have a plan, or one VM of it, begin no further transfer: what is under way goes on to its end. A
warm migration begins no further round; decamp cutover goes on with the last one. decamp resume
ends the pause.
`

func newCutover(p *program) *cobra.Command {
	return newOrder(p, "cutover", "Let warm migrations cut over", cutoverHelp, fleetdb.CutOver, journal.CutOver)
}

func newPause(p *program) *cobra.Command {
	cmd := newOrder(p, "pause", "Let a plan, a VM or a warm migration pause", pauseHelp, fleetdb.Pause, journal.Pause)
	cmd.Flags().Bool("off", false, "go on: as decamp resume")
	return cmd
}

// newOrder is a command that gives an order to a plan or a VM of it, or to a warm run.
func newOrder(p *program, name, short, long string, o fleetdb.Order, run journal.Order) *cobra.Command {
	fleet := fleetFlags{assembler: p.assembler}
	cmd := &cobra.Command{
		Use: name + " RUN|PLAN[/VM]", Short: short, Long: trimHelp(long) + "\n\n" + trimHelp(namedHelp), Args: exactArgs("RUN"),
		Example:           "decamp " + name + " web01-3f9a1c\ndecamp " + name + " wave-1/db01",
		Annotations:       exitCodes(ordersExits...),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			o, run := o, run
			if off, err := cmd.Flags().GetBool("off"); err == nil && off {
				o, run = fleetdb.GoOn, journal.GoOn
			}
			return giveOrderByName(cmd.Context(), p.out, &fleet, args[0], o, func() error { return giveRunOrder(p.out, p.assembler, journal.ID(args[0]), run) })
		}),
	}
	fleet.registerFlags(cmd)
	return cmd
}

// giveRunOrder gives an order to a warm run of this state directory.
func giveRunOrder(out *output, a *assemble.Assembler, id journal.ID, order journal.Order) error {
	state, store, run, err := recordedRun(a, id)
	switch {
	case err != nil:
		return err
	case !run.Plan.Warm:
		return fault.New(fault.Conflict, "run %s is not a warm one", id).WithHint("it ends without a command; see its state with decamp runs")
	case run.State == journal.Done:
		return fault.New(fault.Conflict, "run %s is done", id).WithHint("nothing is left to do")
	}
	if err := store.Give(id, order); err != nil {
		return err
	}
	return printOrder(out, id, order, workflow.InUse(state))
}
