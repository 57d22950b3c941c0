package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate/warm"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/workflow"
)

// sendCommandByName gives a command to a plan or one of its VMs. If the name is a run of decamp migrate,
// it calls other.
func sendCommandByName(ctx context.Context, out *output, fleet *fleetFlags, name string, o fleetdb.Command, other func() error) (err error) {
	c, closeControl, err := fleet.openControl(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, closeControl)
	planName, vmName, isRun, err := server.ResolveName(ctx, c, name)
	switch {
	case err != nil:
		return err
	case isRun:
		return other()
	}
	return sendCommand(ctx, out, c, name, planName, vmName, o)
}

// sendCommand gives a command to a plan, or to one of its VMs if vmName is set, and prints the effect.
// name is the argument of the user.
func sendCommand(ctx context.Context, out *output, c server.Control, name, planName, vmName string, o fleetdb.Command) (err error) {
	if vmName == "" {
		err = c.CommandPlan(ctx, planName, o)
	} else {
		var vm fleetdb.VM
		if vm, err = server.FindVM(ctx, c, planName, vmName); err == nil {
			err = c.CommandVM(ctx, vm.Key, o)
		}
	}
	if err != nil {
		return err
	}
	if out.json {
		return out.printJSON(map[string]any{"plan": planName, "vm": vmName, "command": o, "driven": isDriven(ctx, c)})
	}
	words := planCommandEffect(o)
	// A pause has its effect at once, with or without a process.
	if o != fleetdb.Pause && !isDriven(ctx, c) && !hasEnded(ctx, c, planName, vmName) {
		words = fmt.Sprintf("%s is queued, because no decamp process executes the plan. Execute it with decamp plan run FILE, or with a server (decamp serve).", queuedWord(o))
	}
	_, err = fmt.Fprintln(out, out.message("%s: %s", name, words))
	return err
}

// isDriven reports whether a process executes the fleet's plans.
func isDriven(ctx context.Context, c server.Control) bool {
	workers, err := c.Workers(ctx)
	return err == nil && slices.ContainsFunc(workers, func(w fleetdb.Worker) bool { return w.Alive })
}

// queuedWord returns the command as the user types it.
func queuedWord(o fleetdb.Command) string {
	if o == fleetdb.Withdraw {
		return "rollback --withdraw"
	}
	return o.Word()
}

// hasEnded reports whether a plan, or its VM if vmName is set, has ended, so that no command is queued for
// it. It returns false if that cannot be read.
func hasEnded(ctx context.Context, c server.Control, planName, vmName string) bool {
	if vmName == "" {
		p, err := c.Plan(ctx, planName)
		return err == nil && p.State.IsFinal()
	}
	vm, err := server.FindVM(ctx, c, planName, vmName)
	return err == nil && vm.State.IsFinal()
}

// planCommandEffect describes the effect of a command for a plan.
func planCommandEffect(o fleetdb.Command) string {
	switch o {
	case fleetdb.Pause:
		return "paused: no further transfer begins, and running transfers continue."
	case fleetdb.CutOver:
		return "cutover requested: warm VMs cut over when no round is running."
	case fleetdb.Cancel:
		return "canceled: source VMs are restored."
	case fleetdb.Retry:
		return "failed VMs are retried."
	case fleetdb.Rollback:
		return "rollback requested: unpublished VMs are discarded."
	case fleetdb.Withdraw:
		return "withdrawal requested: the VM is removed from its target; the source VM is powered on if decamp shut it down."
	}
	return "resumed."
}

// A sentCommand is a command for a warm run of a state directory.
type sentCommand struct {
	state string          // state directory
	store *journal.Store  // store of the run
	id    journal.ID      // the run
	order journal.Command // the command
}

// printCommandEffect prints the effect of a command for a run. If a process executes the run, it waits until
// that process has read the command, but not for long.
func printCommandEffect(ctx context.Context, out *output, c sentCommand) (err error) {
	driven, read := workflow.InUse(c.state), false
	if driven {
		if read, err = warm.NewResponse(out.warn, c.state, c.store, c.id).Wait(ctx); err != nil {
			return err
		}
	}
	if out.json {
		return out.printJSON(map[string]any{"run": c.id, "command": c.order, "driven": driven, "read": read})
	}
	fmt.Fprintf(out, "%s\n", commandEffect(c.order))
	if !driven {
		fmt.Fprintln(out, "No decamp process executes the run now. Run the command that began it again.")
	}
	return nil
}

// commandEffect describes the effect of a command for a warm run.
func commandEffect(o journal.Command) string {
	switch o {
	case journal.CutOver:
		return "The run cuts over when no round is running."
	case journal.Pause:
		return "The run begins no further round."
	case journal.GiveUp:
		return "The decamp process that executes the run cancels it."
	}
	return "The run resumes its rounds."
}
