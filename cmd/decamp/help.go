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

// noSuchCommand returns an error for an unknown subcommand, with the nearest known ones.
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

// exactArgs returns a check for exactly the named arguments.
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

// badUsage returns fault.Invalid with the help of the command as its remedy.
func badUsage(cmd *cobra.Command, format string, args ...any) error {
	return fault.New(fault.Invalid, "%s: %w", cmd.CommandPath(), fmt.Errorf(format, args...)).
		WithHint("run: %s --help", cmd.CommandPath())
}

// trimHelp removes the newlines at the ends of a raw string.
func trimHelp(s string) string { return strings.Trim(s, "\n") }

// helpWidth is the column at which usages of flags are wrapped.
const helpWidth = 100

// exitNote is the annotation of a command with its exit codes.
const exitNote = "exit-codes"

// An exit is an exit code of a command: the kind of the error with its meaning.
type exit struct {
	kind  fault.Kind // kind that has the exit code
	means string     // cause of the exit code in this command
}

// exitCodes returns the annotation with the exit codes of a command. The codes for success, invalid
// usage and internal errors are the same for all commands, and that for signals unless some contains it.
func exitCodes(some ...exit) map[string]string {
	lines := []string{exitLine(0, "done")}
	all := append([]exit{{fault.Internal, "internal error of decamp; please report it"}, {fault.Invalid, "invalid usage or input"}}, some...)
	if !slices.ContainsFunc(all, func(e exit) bool { return e.kind == fault.Canceled }) {
		all = append(all, exit{fault.Canceled, "stopped by a signal"})
	}
	slices.SortStableFunc(all, func(a, b exit) int { return a.code() - b.code() })
	for _, e := range all {
		lines = append(lines, exitLine(e.code(), e.means))
	}
	return map[string]string{exitNote: strings.Join(lines, "\n")}
}

// code returns the number.
func (e exit) code() int { return fault.ExitCode(fault.New(e.kind, "")) }

// exitLine returns the line of an exit code in the help.
func exitLine(code int, means string) string { return fmt.Sprintf("%3d  %s", code, means) }

// helpName is the name of decamp help.
const helpName = "help"

// A section is a part of the help of a command.
type section struct{ title, body string }

// helpSections returns the help of a command after its description. docs/commands.md has the same
// sections.
func helpSections(cmd *cobra.Command) []section {
	var sections []section
	if cmd.Name() == helpName {
		sections = append(sections, section{"Topics", topicList()})
	}
	sections = append(sections, section{"Usage", "  " + usageLine(cmd)}, section{"Examples", indentLines(cmd.Example)}, section{"Commands", commandList(cmd)})
	sections = append(sections, flagSections(cmd.LocalNonPersistentFlags())...)
	sections = append(sections, section{"Global flags", flagHelp(globalFlags(cmd))}, section{"Exit codes", indentLines(cmd.Annotations[exitNote])})
	if !cmd.HasParent() {
		sections = append(sections, section{"Topics of decamp help", topicList()})
	}
	return sections
}

// flagSections returns the usages of flags: first the flags without a group, then each group.
func flagSections(all *pflag.FlagSet) (sections []section) {
	titles := []string{"Flags"}
	for _, g := range flagGroups {
		titles = append(titles, g.title)
	}
	groups := map[string]*pflag.FlagSet{}
	for _, title := range titles {
		groups[title] = pflag.NewFlagSet("", pflag.ContinueOnError)
	}
	all.SortFlags = false
	all.VisitAll(func(f *pflag.Flag) {
		title := titles[0]
		if group := f.Annotations[groupNote]; len(group) > 0 {
			title = group[0]
		}
		groups[title].SortFlags = false
		groups[title].AddFlag(f)
	})
	for _, title := range titles {
		sections = append(sections, section{title, flagHelp(groups[title])})
	}
	return sections
}

// usageLine returns the usage of a command without the "[flags]" of cobra.
func usageLine(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return cmd.Name() + " COMMAND"
	}
	return cmd.Parent().CommandPath() + " " + cmd.Use
}

// writeHelp prints the help of a command.
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

// commandList returns the subcommands with their short descriptions.
func commandList(cmd *cobra.Command) string {
	var lines []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			lines = append(lines, fmt.Sprintf("  %-11s %s", c.Name(), c.Short))
		}
	}
	return strings.Join(lines, "\n")
}

// globalFlags returns the flags that all commands accept.
func globalFlags(cmd *cobra.Command) *pflag.FlagSet {
	if !cmd.HasParent() {
		return cmd.PersistentFlags()
	}
	return cmd.InheritedFlags()
}

// flagHelp returns the usages of flags, without --help.
func flagHelp(f *pflag.FlagSet) string {
	if help := f.Lookup("help"); help != nil {
		help.Hidden = true
	}
	return strings.TrimRight(flaghelp.Usages(f, helpWidth), "\n")
}

// indentLines indents each line by two spaces.
func indentLines(s string) string {
	if s == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(s, "\n", "\n  ")
}
