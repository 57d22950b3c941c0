package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/fault"
)

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
	f.SortFlags = false // the order in which they were declared
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	shown.SortFlags = false
	f.VisitAll(func(flag *pflag.Flag) {
		c := *flag
		if c.Value.Type() == "bool" {
			c.Value = plainValue{c.Value}
		}
		shown.AddFlag(&c)
	})
	return strings.TrimRight(shown.FlagUsagesWrapped(helpWidth), "\n")
}

// plainValue hides from pflag that a value is a bool: help shows --json, not --json[=true|false].
type plainValue struct{ pflag.Value }

func indent(s string) string {
	if s == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(s, "\n", "\n  ")
}
