package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flow"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/roster"
)

const cutoverHelp = `
Have a warm migration cut over: the round under way, if any, is completed, or another is
done if the last one began more than a minute ago; then the VM is shut down, what changed
last is copied, and the image is proven and published.

The process that drives the run obeys within seconds. If none does, the order is kept until
the run is continued.
`

const cancelHelp = `
Give a migration up, at any point before its VM is published. The VM is as it was found:
our snapshots are removed and their deltas merged, change tracking is off if it was, and
the VM is powered on if decamp powered it off for the cutover of a warm migration. What
was copied, and the record of the run, are removed.

If a decamp drives the run, it obeys within seconds and undoes it; else this command logs
in to the host and does so itself: by SSH, too, where the host has a free licence.
`

const pauseHelp = `
Have a plan, or one VM of it, begin no further transfer: what is under way goes on to its end. A
warm migration begins no further round; decamp cutover goes on with the last one. decamp resume
ends the pause.
`

func newCutover(a *app) *cobra.Command {
	return a.newOrder("cutover", "Let warm migrations cut over", cutoverHelp, roster.CutOver, plan.CutOver)
}

func newPause(a *app) *cobra.Command {
	cmd := a.newOrder("pause", "Let a plan, a VM or a warm migration pause", pauseHelp, roster.Pause, plan.Pause)
	cmd.Flags().Bool("off", false, "go on: as decamp resume")
	return cmd
}

func newCancel(a *app) *cobra.Command {
	var l assemble.Login
	var m meetingFlags
	var ssh assemble.SSHOptions
	cmd := &cobra.Command{
		Use: "cancel RUN|PLAN[/VM]", Short: "Give a migration or a plan up, and leave VMs as they were found",
		Long: text(cancelHelp) + "\n\n" + text(namedHelp) + "\n\n" + text(sourceHelp), Args: takes("RUN"), Example: "decamp cancel web01-3f9a1c\ndecamp cancel wave-1/db01",
		Annotations: exits(append(slices.Clone(sourceExits[1:]),
			exit{fault.NotFound, "there is no such run, plan or VM: decamp runs and decamp status list them"},
			exit{fault.Conflict, "the VM is published, or a decamp is at work that does not take the order"})...),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			return a.give(cmd.Context(), m, args[0], roster.Cancel, func() error {
				return a.cancelRun(cmd.Context(), l, ssh, plan.ID(args[0]))
			})
		}),
	}
	m.register(cmd)
	registerSSH(&ssh, cmd.Flags())
	registerLogin(&l, cmd)
	return cmd
}

// recorded returns a run, and the state directory and store that it is in.
func (a *app) recorded(id plan.ID) (state string, store *plan.Store, run plan.Run, err error) {
	if state, err = a.StateDir(); err != nil {
		return "", nil, run, err
	}
	store = plan.NewStore(state)
	run, err = store.Run(id)
	return state, store, run, err
}

// recordedMove is the move of a run that is on record, as far as its target and what it is undone by go.
func recordedMove(p plan.Plan) assemble.Move {
	m := assemble.Move{Options: planfile.DefaultOptions(), Maps: p.Maps}
	m.To, m.Format = []planfile.Destination{planfile.Destination(p.Target)}, planfile.Format(p.Format)
	return m
}

func (a *app) cancelRun(ctx context.Context, l assemble.Login, ssh assemble.SSHOptions, id plan.ID) (err error) {
	state, store, run, err := a.recorded(id)
	switch {
	case err != nil:
		return err
	case run.State == plan.Done:
		return fault.New(fault.Conflict, "run %s is done and its VM published", id).WithHint("remove the VM from %s by hand if it is not wanted", run.Plan.Target)
	case run.Plan.Warm && flow.InUse(state):
		if err := store.Give(id, plan.GiveUp); err != nil {
			return err
		}
		return a.tellOrder(id, plan.GiveUp, true)
	}
	p := run.Plan
	m := recordedMove(p)
	m.Login, m.SSH, m.Connections = l, ssh, 1
	w, err := a.Open(ctx, m, p.Source)
	if err != nil {
		return err
	}
	defer closing(&err, w.Close)
	w.To[0].Plan = p
	return a.discard(ctx, w)
}

// newOrder is a command that gives an order to a plan or a VM of it, or to a warm run.
func (a *app) newOrder(name, short, long string, o roster.Order, run plan.Order) *cobra.Command {
	var m meetingFlags
	cmd := &cobra.Command{
		Use: name + " RUN|PLAN[/VM]", Short: short, Long: text(long) + "\n\n" + text(namedHelp), Args: takes("RUN"),
		Example:           "decamp " + name + " web01-3f9a1c\ndecamp " + name + " wave-1/db01",
		Annotations:       exits(ordersExits...),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			o, run := o, run
			if off, err := cmd.Flags().GetBool("off"); err == nil && off {
				o, run = roster.GoOn, plan.GoOn
			}
			return a.give(cmd.Context(), m, args[0], o, func() error { return a.order(plan.ID(args[0]), run) })
		}),
	}
	m.register(cmd)
	return cmd
}

func (a *app) order(id plan.ID, order plan.Order) error {
	state, store, run, err := a.recorded(id)
	switch {
	case err != nil:
		return err
	case !run.Plan.Warm:
		return fault.New(fault.Conflict, "run %s is not a warm one", id).WithHint("it ends by itself; decamp runs says where it stands")
	case run.State == plan.Done:
		return fault.New(fault.Conflict, "run %s is done", id).WithHint("nothing is left to do")
	}
	if err := store.Give(id, order); err != nil {
		return err
	}
	return a.tellOrder(id, order, flow.InUse(state))
}

func (a *app) tellOrder(id plan.ID, order plan.Order, driven bool) error {
	if a.json {
		return a.print(map[string]any{"run": id, "order": order, "driven": driven})
	}
	fmt.Fprintf(a.out, "%s\n", orderWords(order))
	if !driven {
		fmt.Fprintln(a.out, "No decamp drives the run now: give the command again that began it.")
	}
	return nil
}

func orderWords(o plan.Order) string {
	switch o {
	case plan.CutOver:
		return "The run cuts over as soon as no round is under way."
	case plan.Pause:
		return "The run begins no further round."
	case plan.GiveUp:
		return "The run is given up by the decamp that drives it."
	}
	return "The run goes on with rounds."
}
