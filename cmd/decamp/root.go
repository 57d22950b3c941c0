package main

import (
	"context"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/logging"
)

const rootHelp = `
decamp migrates virtual machines from VMware ESXi and vCenter to KVM.

It reads the disks over HTTPS, hashes every MiB, reads the images back from the medium before
it publishes a VM, and writes a libvirt domain beside them. At the source it changes only the
power state, if you permit that, and creates temporary snapshots with --warm. It can be killed
at any time: the same command continues.
`

const rootExamples = `
decamp ls esxi://root@esx1                               # list the VMs
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm   # migrate one VM
decamp plan run plan.yaml                                # migrate many, with a plan
decamp verify /srv/vm/web01                              # verify it again
`

// newRoot returns the command decamp with all subcommands.
func newRoot(p *program) *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:     "decamp",
		Short:   "Migrate virtual machines from VMware to KVM",
		Long:    trimHelp(rootHelp),
		Example: trimHelp(rootExamples),
		Args:    noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return p.out.printVersion()
			}
			return cmd.Help()
		},
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: p.applySettings,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(p.out)
	root.SetErr(p.out.screen)
	root.SetHelpFunc(writeHelp)
	root.SetHelpCommand(newHelp())
	root.Flags().BoolVar(&version, "version", false, "version for decamp") // cobra's flag requires text/template
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return badUsage(cmd, "%w", err) })
	g := root.PersistentFlags()
	g.SortFlags = false
	g.StringVar(&p.assembler.State, "state", p.assembler.State, "state `DIR` with runs and certificates (default /var/lib/decamp for root, $XDG_STATE_HOME/decamp for others)")
	g.Lookup("state").DefValue = "" // the same help in tests, which set a directory before
	g.BoolVar(&p.out.json, "json", false, "print one JSON object per line; the last one is the result or the error")
	g.BoolVarP(&p.out.verbose, "verbose", "v", false, "print more, and log everything to the standard error")
	g.StringVar(&p.logFile, "log-file", "", "append a full log to `FILE`")
	g.StringVar(&p.logFormat, "log-format", string(logging.Text), "`FORMAT` of the log: text, json, or journal for the journal of systemd")
	login, logout := newLogin(p)
	root.AddCommand(newInit(p), newLs(p), newMigrate(p), newDoctor(p), newPlan(p), newAdvise(p), newBench(p), newRuns(p), newGather(p), newStatus(p), newWatch(p), newPause(p), newResume(p), newCutover(p), newCancel(p), newRetry(p), newRollback(p), newLimits(p), newAudit(p), newServe(p), newWorker(p), newToken(p), newKey(p), newNotify(p), newClean(p), newVerify(p), newTrial(p), newRehearse(p), newConsole(p), newConvert(p), newInspect(p), newMount(p), newNBD(p), newLand(p), newConfig(p), newServer(p), login, logout, newCompletion(p), newVersion(p))
	addCompletions(p, root)
	return root
}

// runCommand executes one command and returns the exit code of the process.
func runCommand(ctx context.Context, p *program, args []string) int {
	p.setLog(slog.New(slog.DiscardHandler))
	results := &results{w: p.out.Writer}
	p.out.Writer = results
	root := newRoot(p)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = results.firstError()
	}
	if slices.Contains(args, "--json") {
		p.out.json = true // also if an error kept the flags from being read
	}
	p.out.reportError(err)
	return fault.ExitCode(err)
}
