package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flaghelp"
)

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

// exactArgs checks that a command is given exactly the arguments that are named.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return badUsage(cmd, "%s is missing", strings.Join(names[len(args):], " and "))
		case len(args) > len(names):
			return badUsage(cmd, "unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

func badUsage(cmd *cobra.Command, format string, args ...any) error {
	return fault.New(fault.Invalid, "%s: %w", cmd.CommandPath(), fmt.Errorf(format, args...)).
		WithHint("run: %s --help", cmd.CommandPath())
}

// trimHelp is a help text without the newlines that frame it in the source.
func trimHelp(s string) string { return strings.Trim(s, "\n") }

// helpWidth is where help texts are wrapped.
const helpWidth = 100

// exitNote is the annotation that holds a command's exit codes.
const exitNote = "exit-codes"

// exit is an exit code of a command: the kind of the error with its meaning.
type exit struct {
	kind  fault.Kind
	means string
}

// exitCodes documents a command's exit codes. 0, wrong usage, our own faults and being
// stopped are the same everywhere.
func exitCodes(some ...exit) map[string]string {
	lines := []string{exitLine(0, "done")}
	all := append([]exit{{fault.Internal, "internal error of decamp; please report it"}, {fault.Invalid, "invalid usage or input"}}, some...)
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

// helpSections returns a command's help, which is also the source of docs/commands.md.
func helpSections(cmd *cobra.Command) []section {
	return []section{
		{"Usage", "  " + usageLine(cmd)},
		{"Commands", commandList(cmd)},
		{"Flags", flagHelp(cmd.LocalNonPersistentFlags())},
		{"Global flags", flagHelp(globalFlags(cmd))},
		{"Examples", indentLines(cmd.Example)},
		{"Exit codes", indentLines(cmd.Annotations[exitNote])},
	}
}

// usageLine returns cobra's usage line without "[flags]", which has a separate section.
func usageLine(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return cmd.Name() + " COMMAND"
	}
	return cmd.Parent().CommandPath() + " " + cmd.Use
}

func writeHelp(cmd *cobra.Command, _ []string) {
	var b strings.Builder
	b.WriteString(cmd.Long + "\n")
	for _, s := range helpSections(cmd) {
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

func flagHelp(f *pflag.FlagSet) string {
	if help := f.Lookup("help"); help != nil {
		help.Hidden = true
	}
	return strings.TrimRight(flaghelp.Usages(f, helpWidth), "\n")
}

func indentLines(s string) string {
	if s == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(s, "\n", "\n  ")
}
