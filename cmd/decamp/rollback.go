package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/roster"
)

const rollbackHelp = `
Take back what was not to be. Of a plan that is everything which is not published: images,
snapshots and change tracking go, and a VM that decamp powered off runs again. VMs that are
published stay where they are.

RUN is one VM that decamp migrate moved from here; decamp runs lists them. With --withdraw a
published VM is removed from where it lives now, and only what decamp made of it; then the one
at the source is powered on, if decamp had shut it down. What was written to the published VM
since is lost. One that runs is left alone.
`

// rollbackOptions are the flags of decamp rollback.
type rollbackOptions struct {
	meetingFlags
	login    login
	withdraw bool
}

func newRollback(a *app) *cobra.Command {
	var o rollbackOptions
	cmd := &cobra.Command{
		Use: "rollback PLAN[/VM]|RUN", Short: "Give up what is not published, or take a published VM back",
		Long: text(rollbackHelp) + "\n\n" + text(namedHelp), Args: takes("PLAN or RUN"),
		Example:     "decamp rollback wave-1\ndecamp rollback wave-1/db01\ndecamp rollback web01-3f2a1c --withdraw",
		Annotations: exits(append(slices.Clone(ordersExits), exit{fault.Invalid, "a published VM is to be removed, and --withdraw does not say so"})...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			return a.give(cmd.Context(), o.meetingFlags, args[0], roster.Rollback, func() error {
				return a.rollBack(cmd.Context(), o, plan.ID(args[0]))
			})
		}),
	}
	cmd.Flags().BoolVar(&o.withdraw, "withdraw", false, "of a RUN: remove the published VM, with what was written to it since")
	o.meetingFlags.register(cmd)
	o.login.register(cmd)
	return cmd
}

// rollBack takes a run back.
func (a *app) rollBack(ctx context.Context, o rollbackOptions, id plan.ID) (err error) {
	state, err := a.stateDir()
	if err != nil {
		return err
	}
	run, err := plan.NewStore(state).Run(id)
	switch {
	case fault.Is(err, fault.NotFound):
		return fault.New(fault.NotFound, "there is no plan or run %q", id).WithHint("decamp status lists plans, decamp runs lists runs")
	case err != nil:
		return err
	case run.State == plan.Done && !o.withdraw:
		return fault.New(fault.Invalid, "run %s is done: its VM lives in %s", id, run.Plan.Target).
			WithHint("decamp rollback %s --withdraw removes it, with what was written to it since", id)
	}
	p := run.Plan
	w, err := a.openWorks(ctx, migrateOptions{
		login: o.login, to: []string{p.Target}, format: p.Format, transport: "https", connections: usualConnections, domainType: "kvm", maps: p.Maps,
	}, p.Source)
	if err != nil {
		return err
	}
	defer closing(&err, w.Close)
	d := w.to[0]
	d.plan = p
	w.shown = a.newProgress(w.names())
	err = w.migrator.Rollback(ctx, id, w.rigOf(d))
	w.shown.close()
	if err != nil {
		return err
	}
	if a.json {
		return a.print(map[string]plan.ID{"rolledBack": id})
	}
	_, err = fmt.Fprintf(a.out, "Run %s is rolled back: nothing of it is left in %s.\n", id, p.Target)
	return err
}
