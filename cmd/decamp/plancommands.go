package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
)

const resumeHelp = `
Resume a plan or one VM of it after decamp pause, or after decamp stopped logging in to a
source that refused the password. A warm migration of decamp migrate resumes its rounds.
`

const retryHelp = `
Retry the failed and canceled VMs of a plan. They continue where they stopped: verified parts
of images are not copied again. VMs that are done or running are not affected.
`

// newResume returns the command decamp resume.
func newResume(p *program) *cobra.Command {
	return newRunCommand(p, "resume", "Resume a plan, a VM or a warm migration", resumeHelp, fleetdb.GoOn, journal.GoOn)
}

// newRetry returns the command decamp retry.
func newRetry(p *program) *cobra.Command {
	return newPlanCommand(p, "retry", "Retry failed VMs of a plan", retryHelp, fleetdb.Retry)
}

// newPlanCommand returns a command that gives a command which only plans accept.
func newPlanCommand(p *program, name, short, long string, o fleetdb.Command) *cobra.Command {
	fleet := fleetFlags{assembler: p.assembler}
	cmd := &cobra.Command{
		Use: name + " PLAN[/VM]", Short: short, Long: trimHelp(long) + "\n\n" + trimHelp(namedHelp), Args: exactArgs("PLAN"),
		Example:     "decamp " + name + " wave-1\ndecamp " + name + " wave-1/db01",
		Annotations: exitCodes(commandExits...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			return sendCommandByName(cmd.Context(), p.out, &fleet, args[0], o, func() error {
				return fault.New(fault.NotFound, "plan %q does not exist", args[0]).WithHint("list plans with decamp status; a run of decamp migrate continues with the same command")
			})
		}),
	}
	fleet.registerFlags(cmd)
	return cmd
}

const cutoverHelp = `
Start the cutover of a warm migration. A running round is completed; if the last round began
more than a minute ago, another one is made. Then the VM is shut down, the last changes are
copied, and the image is verified and published.

The process that executes the run starts the cutover within seconds. Without such a process,
the command is stored until the run continues.
`

const pauseHelp = `
Pause a plan or one VM of it: no further transfer begins, and running transfers continue to
their end. A warm migration begins no further round. decamp cutover starts the last round also
during a pause. decamp resume ends the pause.
`

// newCutover returns the command decamp cutover.
func newCutover(p *program) *cobra.Command {
	return newRunCommand(p, "cutover", "Start the cutover of warm migrations", cutoverHelp, fleetdb.CutOver, journal.CutOver)
}

// newPause returns the command decamp pause. Its flag --off is the older form of decamp resume.
func newPause(p *program) *cobra.Command {
	cmd := newRunCommand(p, "pause", "Pause a plan, a VM or a warm migration", pauseHelp, fleetdb.Pause, journal.Pause)
	cmd.Flags().Bool("off", false, "resume, as decamp resume does")
	return cmd
}

// newRunCommand returns a command that gives the command o to a plan or one of its VMs, or run to a warm
// run.
func newRunCommand(p *program, name, short, long string, o fleetdb.Command, run journal.Command) *cobra.Command {
	fleet := fleetFlags{assembler: p.assembler}
	cmd := &cobra.Command{
		Use: name + " RUN|PLAN[/VM]", Short: short, Long: trimHelp(long) + "\n\n" + trimHelp(namedHelp), Args: exactArgs("RUN"),
		Example:           "decamp " + name + " web01-3f9a1c\ndecamp " + name + " wave-1/db01",
		Annotations:       exitCodes(commandExits...),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			o, run := o, run
			if off, err := cmd.Flags().GetBool("off"); err == nil && off {
				o, run = fleetdb.GoOn, journal.GoOn
			}
			return sendCommandByName(cmd.Context(), p.out, &fleet, args[0], o, func() error {
				return sendRunCommand(cmd.Context(), p.out, p.assembler, journal.ID(args[0]), run)
			})
		}),
	}
	fleet.registerFlags(cmd)
	return cmd
}

// sendRunCommand gives a command to a warm run of this state directory.
func sendRunCommand(ctx context.Context, out *output, a *assemble.Assembler, id journal.ID, order journal.Command) error {
	state, store, run, err := recordedRun(a, id)
	switch {
	case err != nil:
		return err
	case !run.Plan.Warm:
		return fault.New(fault.Conflict, "run %s is not a warm migration", id).WithHint("see its state with decamp runs")
	case run.State == journal.Done:
		return fault.New(fault.Conflict, "run %s is done", id).WithHint("no command is required")
	}
	if err := store.SendCommand(id, order); err != nil {
		return err
	}
	return printCommandEffect(ctx, out, sentCommand{state, store, id, order})
}
