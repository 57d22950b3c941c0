package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/server"
)

// namedHelp is said in the help of every command that takes the name of a plan's VM.
const namedHelp = `
PLAN is a plan that decamp plan run or a server carries out; PLAN/VM is one VM of it, by its
name or reference. The plan is looked for in the state directory, in the database of --db, or
at the server of --server.
`

// ordersExits are those of commands that give orders.
var ordersExits = []exit{
	{fault.NotFound, "there is no such plan, VM or run: decamp status and decamp runs list them"},
	{fault.Conflict, "it cannot be done with what stands so; the error says why"},
	{fault.Denied, "the token does not allow it"},
	{fault.Unreachable, "the database or the server does not answer"},
}

const resumeHelp = `
Have a plan, or one VM of it, go on after decamp pause, or after decamp stopped asking a source
that had refused the password. A warm migration that was begun by decamp migrate goes on with
rounds.
`

const retryHelp = `
Have what failed of a plan, or was given up, be tried again, from where it stopped: what is
proven of the images is not copied again. VMs that are done, or under way, are left alone.
`

func newResume(a *app) *cobra.Command {
	return a.newOrder("resume", "Let a plan, a VM or a warm migration go on", resumeHelp, roster.GoOn, plan.GoOn)
}

func newRetry(a *app) *cobra.Command {
	return a.newPlanOrder("retry", "Try again what failed of a plan", retryHelp, roster.Retry)
}

// newPlanOrder is a command that gives an order that only plans take.
func (a *app) newPlanOrder(name, short, long string, o roster.Order) *cobra.Command {
	var m meetingFlags
	cmd := &cobra.Command{
		Use: name + " PLAN[/VM]", Short: short, Long: text(long) + "\n\n" + text(namedHelp), Args: takes("PLAN"),
		Example:     "decamp " + name + " wave-1\ndecamp " + name + " wave-1/db01",
		Annotations: exits(ordersExits...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			return a.give(cmd.Context(), m, args[0], o, func() error {
				return fault.New(fault.NotFound, "there is no plan %q", args[0]).WithHint("decamp status lists them; what decamp migrate began is continued by the same command")
			})
		}),
	}
	m.register(cmd)
	return cmd
}

// give gives an order to a plan or a VM of it. Where there is no such plan, other is what the
// name may mean.
func (a *app) give(ctx context.Context, m meetingFlags, name string, o roster.Order, other func() error) (err error) {
	c, closeControl, err := a.openControl(ctx, m)
	if err != nil {
		return err
	}
	defer closing(&err, closeControl)
	planName, vmName, isRun, err := server.ResolveName(ctx, c, name)
	switch {
	case err != nil:
		return err
	case isRun:
		return other()
	}
	return a.giveOrder(ctx, c, name, planName, vmName, o)
}

// giveOrder gives an order to a plan or a VM of it, and reports what follows. name is what the user typed.
func (a *app) giveOrder(ctx context.Context, c server.Control, name, planName, vmName string, o roster.Order) (err error) {
	if vmName == "" {
		err = c.OrderPlan(ctx, planName, o)
	} else {
		var vm roster.VM
		if vm, err = server.FindVM(ctx, c, planName, vmName); err == nil {
			err = c.OrderVM(ctx, vm.Key, o)
		}
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.print(map[string]any{"plan": planName, "vm": vmName, "order": o})
	}
	_, err = fmt.Fprintf(a.out, "%s: %s\n", plain(name), planOrderWords(o))
	return err
}

func planOrderWords(o roster.Order) string {
	switch o {
	case roster.Pause:
		return "no transfer begins; those that are under way go on."
	case roster.CutOver:
		return "what is warm cuts over as soon as no round is under way."
	case roster.Cancel:
		return "it is given up; the VMs are left as they were found."
	case roster.Retry:
		return "what failed is tried again."
	case roster.Rollback:
		return "what is not published is given up."
	case roster.Withdraw:
		return "it is removed from its target; at its source it runs again if it was shut down for the migration."
	}
	return "it goes on."
}
