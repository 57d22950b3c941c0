package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
)

const rootHelp = `
decamp moves virtual machines off VMware ESXi and vCenter onto KVM.

It reads the disks over HTTPS, hashes every MiB as it arrives, reads the images back
from the medium before it calls a VM done, and writes a libvirt domain beside them. The
source is never changed but for the power state you ask for, and a snapshot that comes and
goes where you ask for --warm. Kill it at any time: the
same command, given again, continues where it was.
`

const rootExamples = `
decamp lab                                               # an emulated ESXi to try it on
decamp ls esxi://root@esx1                               # what is there
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm   # move one VM
decamp plan run plan.yaml                                # move many, as a plan says
decamp verify /srv/vm/web01                              # prove it again, any time later
`

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:               "decamp",
		Short:             "Move virtual machines off VMware onto KVM",
		Long:              text(rootHelp),
		Example:           text(rootExamples),
		Args:              noSuchCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetHelpFunc(writeHelp)
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return badUsage(cmd, "%w", err) })
	g := root.PersistentFlags()
	g.SortFlags = false
	g.StringVar(&a.State, "state", "", "`DIR` that remembers runs and certificates (default /var/lib/decamp for root, $XDG_STATE_HOME/decamp for others)")
	g.BoolVar(&a.json, "json", false, "print one JSON object per line, the last one the result or the error")
	g.BoolVarP(&a.verbose, "verbose", "v", false, "tell more; log everything to the standard error")
	g.StringVar(&a.logFile, "log-file", "", "append a full log to `FILE`")
	root.AddCommand(newLs(a), newMigrate(a), newDoctor(a), newPlan(a), newAdvise(a), newBench(a), newRuns(a), newStatus(a), newWatch(a), newPause(a), newResume(a), newCutover(a), newCancel(a), newRetry(a), newRollback(a), newLimits(a), newAudit(a), newServe(a), newWorker(a), newToken(a), newKey(a), newClean(a), newVerify(a), newTrial(a), newRehearse(a), newConsole(a), newConvert(a), newInspect(a), newMount(a), newLand(a), newLab(a), newCompletion(a), newVersion(a))
	return root
}

// logged gives a command its log for as long as it runs.
func (a *app) logged(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		stop, err := a.startLog()
		if err != nil {
			return err
		}
		defer closing(&err, stop)
		return run(cmd, args)
	}
}

// noSuchCommand refuses a first word that is no command, and names the nearest one.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fault.New(fault.Invalid, "%q is not a command", args[0])
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return err.WithHint("did you mean: %s %s", cmd.CommandPath(), strings.Join(near, ", "))
	}
	return err.WithHint("run: %s --help", cmd.CommandPath())
}

// takes checks that a command is given exactly the arguments that are named.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return badUsage(cmd, "%s is missing", strings.Join(names[len(args):], " and "))
		case len(args) > len(names):
			return badUsage(cmd, "%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

func badUsage(cmd *cobra.Command, format string, args ...any) error {
	return fault.New(fault.Invalid, "%s: %w", cmd.CommandPath(), fmt.Errorf(format, args...)).
		WithHint("run: %s --help", cmd.CommandPath())
}

// text is a help text without the newlines that frame it in the source.
func text(s string) string { return strings.Trim(s, "\n") }
