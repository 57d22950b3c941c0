package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flaghelp"
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
	root.AddCommand(newLs(a), newMigrate(a), newDoctor(a), newPlan(a), newAdvise(a), newBench(a), newRuns(a), newStatus(a), newWatch(a), newPause(a), newResume(a), newCutover(a), newCancel(a), newRetry(a), newRollback(a), newLimits(a), newAudit(a), newServe(a), newWorker(a), newToken(a), newKey(a), newClean(a), newVerify(a), newTrial(a), newRehearse(a), newConsole(a), newConvert(a), newInspect(a), newMount(a), newLand(a), newCompletion(a), newVersion(a))
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

const versionHelp = `
Print the version of decamp, of Go and of the platform it was built for.
`

// version is set by the build (-ldflags "-X main.version=…"). It goes into vm.json.
var version = "unknown"

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "Print the version",
		Long:        text(versionHelp),
		Args:        takes(),
		Annotations: exits(),
		RunE:        func(*cobra.Command, []string) error { return a.showVersion() },
	}
}

func (a *app) showVersion() error {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if a.json {
		return a.print(map[string]string{"version": version, "go": runtime.Version(), "platform": platform})
	}
	_, err := fmt.Fprintf(a.out, "decamp %s (%s, %s)\n", version, runtime.Version(), platform)
	return err
}

const completionHelp = `
Print the completion script of a shell. It completes commands and flags; it never asks a
host for names.
`

const completionExamples = `
source <(decamp completion bash)                                 # this shell only
decamp completion bash > /etc/bash_completion.d/decamp           # all bash users
decamp completion zsh  > "${fpath[1]}/_decamp"
decamp completion fish > ~/.config/fish/completions/decamp.fish
`

func newCompletion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "completion SHELL",
		Short:       "Print the completion script for bash, zsh or fish",
		Long:        text(completionHelp),
		Example:     text(completionExamples),
		Args:        takes("SHELL"),
		ValidArgs:   []string{"bash", "zsh", "fish"},
		Annotations: exits(),
		RunE:        a.complete,
	}
}

func (a *app) complete(cmd *cobra.Command, args []string) error {
	root := cmd.Root()
	switch args[0] {
	case "bash":
		return root.GenBashCompletionV2(a.out, true)
	case "zsh":
		return root.GenZshCompletion(a.out)
	case "fish":
		return root.GenFishCompletion(a.out, true)
	}
	return badUsage(cmd, "no completion for %q: bash, zsh or fish", args[0])
}

// helpWidth is where help texts are wrapped.
const helpWidth = 100

// exitNote is the annotation that holds a command's exit codes.
const exitNote = "exit-codes"

// exit is one exit code of a command: the kind of error, and what it means there.
type exit struct {
	kind  fault.Kind
	means string
}

// exits documents a command's exit codes. 0, wrong usage, our own faults and being
// stopped are the same everywhere.
func exits(some ...exit) map[string]string {
	lines := []string{exitLine(0, "done")}
	all := append([]exit{{fault.Internal, "a fault of decamp itself; please report it"}, {fault.Invalid, "wrong usage or input"}}, some...)
	slices.SortStableFunc(all, func(a, b exit) int { return a.code() - b.code() })
	for _, e := range append(all, exit{fault.Canceled, "stopped by a signal"}) {
		lines = append(lines, exitLine(e.code(), e.means))
	}
	return map[string]string{exitNote: strings.Join(lines, "\n")}
}

func (e exit) code() int { return fault.ExitCode(fault.New(e.kind, "")) }

func exitLine(code int, means string) string { return fmt.Sprintf("%3d  %s", code, means) }

// section is one part of a command's help.
type section struct{ title, body string }

// sections is a command's help: what it shows is also what docs/commands.md is made of.
func sections(cmd *cobra.Command) []section {
	return []section{
		{"Usage", "  " + usage(cmd)},
		{"Commands", commandList(cmd)},
		{"Flags", flags(cmd.LocalNonPersistentFlags())},
		{"Global flags", flags(globalFlags(cmd))},
		{"Examples", indent(cmd.Example)},
		{"Exit codes", indent(cmd.Annotations[exitNote])},
	}
}

// usage is cobra's line without "[flags]": they have a section of their own.
func usage(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return cmd.Name() + " COMMAND"
	}
	return cmd.Parent().CommandPath() + " " + cmd.Use
}

func writeHelp(cmd *cobra.Command, _ []string) {
	var b strings.Builder
	b.WriteString(cmd.Long + "\n")
	for _, s := range sections(cmd) {
		if s.body != "" {
			fmt.Fprintf(&b, "\n%s:\n%s\n", s.title, s.body)
		}
	}
	io.WriteString(cmd.OutOrStdout(), b.String())
}

func commandList(cmd *cobra.Command) string {
	var lines []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			lines = append(lines, fmt.Sprintf("  %-11s %s", c.Name(), c.Short))
		}
	}
	return strings.Join(lines, "\n")
}

// globalFlags lists what each command takes beside its own flags; --help goes unsaid.
func globalFlags(cmd *cobra.Command) *pflag.FlagSet {
	if !cmd.HasParent() {
		return cmd.PersistentFlags()
	}
	return cmd.InheritedFlags()
}

func flags(f *pflag.FlagSet) string {
	if help := f.Lookup("help"); help != nil {
		help.Hidden = true
	}
	return strings.TrimRight(flaghelp.Usages(f, helpWidth), "\n")
}

func indent(s string) string {
	if s == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(s, "\n", "\n  ")
}
