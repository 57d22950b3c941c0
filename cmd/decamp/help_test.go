package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// docs/commands.md contains the help texts of all commands. The flag -update writes it.
func TestCommandReference(t *testing.T) {
	root := newRoot(newTestProgram(t).program)
	var b strings.Builder
	b.WriteString("# Commands\n\nMade from the help texts: `go test ./cmd/decamp -run CommandReference -update`.\n" +
		"`decamp-lab`, the emulated ESXi, is another program: [its flags](lab.md#the-program).\n")
	for _, cmd := range append([]*cobra.Command{root}, allCommands(root)...) {
		writeReference(&b, cmd)
	}
	b.WriteString("\n## Help topics\n")
	for _, topic := range helpTopics() {
		fmt.Fprintf(&b, "\n### decamp help %s\n\n```\n%s\n\n%s\n```\n", topic.name, topic.title, topic.body)
	}
	golden(t, filepath.Join("..", "..", "docs", "commands.md"), b.String())
}

// allCommands lists the commands below cmd, each before its subcommands.
func allCommands(cmd *cobra.Command) []*cobra.Command {
	var list []*cobra.Command
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			list = append(append(list, c), allCommands(c)...)
		}
	}
	return list
}

func writeReference(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n", cmd.CommandPath(), cmd.Long)
	for _, s := range helpSections(cmd) {
		if s.body != "" && (s.title != "Global flags" || !cmd.HasParent()) {
			fmt.Fprintf(b, "\n%s:\n\n```\n%s\n```\n", s.title, s.body)
		}
	}
}

// The list of topics is built when it is shown. No help text contains it at the start.
func TestHelpTopicsAreBuiltOnDemand(t *testing.T) {
	cmd := newHelp()
	for _, topic := range helpTopics() {
		if strings.Contains(cmd.Long+cmd.Example, topic.title) {
			t.Errorf("the texts of decamp help contain the topic %s", topic.name)
		}
	}
}

func TestEveryCommandDocumentsItself(t *testing.T) {
	for _, cmd := range allCommands(newRoot(newTestProgram(t).program)) {
		if cmd.Short == "" || cmd.Long == "" || cmd.Annotations[exitNote] == "" {
			t.Errorf("%s has no short text, long text or exit codes", cmd.Name())
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if len(strings.TrimRight(line, "\n")) > 96 {
				t.Errorf("%s: help line is too long: %s", cmd.Name(), line)
			}
		}
	}
}

func TestHelpFlags(t *testing.T) {
	var first string
	for _, args := range []string{"ls --help", "ls -h"} {
		r := newTestProgram(t)
		if code := r.run(t.Context(), strings.Fields(args)); code != 0 {
			t.Fatalf("%s: exit code %d: %s", args, code, r.stderr())
		}
		if first == "" {
			first = r.out.String()
		}
		if r.out.String() != first {
			t.Errorf("%s prints another help text", args)
		}
	}
	golden(t, "testdata/help-ls.txt", first)
}

func TestCompletionScripts(t *testing.T) {
	for shell, word := range map[string]string{"bash": "__start_decamp", "zsh": "#compdef decamp", "fish": "complete -c decamp"} {
		r := newTestProgram(t)
		if code := r.run(t.Context(), []string{"completion", shell}); code != 0 {
			t.Fatalf("%s: exit code %d: %s", shell, code, r.stderr())
		}
		mustContain(t, r.out.String(), word)
	}
}

func TestCompletionWithoutVMNames(t *testing.T) {
	r := newTestProgram(t)
	r.run(t.Context(), []string{"__complete", "m"})
	mustContain(t, r.out.String(), "migrate")
	r = newTestProgram(t)
	r.run(t.Context(), []string{"__complete", "migrate", "esxi://root@192.0.2.1", ""})
	if got := r.out.String(); got != ":4\n" { // ShellCompDirectiveNoFileComp
		t.Errorf("completion of a VM name: got %q", got)
	}
}

func TestCompletionOfFlagValues(t *testing.T) {
	for flag, want := range map[string]string{"--format": "raw\nqcow2\n:4", "--domain-type": "kvm\nqemu\n:4", "--transport": "https\nnfc\nlanding\n:4"} {
		r := newTestProgram(t)
		r.run(t.Context(), []string{"__complete", "migrate", flag, ""})
		if !strings.HasPrefix(r.out.String(), want) {
			t.Errorf("completion of %s: got %q, want %q", flag, r.out, want)
		}
	}
}

// The help of a command, without its flags, fits on a screen. Longer texts are help topics and pages of docs/.
func TestHelpIsShort(t *testing.T) {
	const maxLines, maxIntro = 40, 24
	root := newRoot(newTestProgram(t).program)
	for _, cmd := range append([]*cobra.Command{root}, allCommands(root)...) {
		intro := 1 + strings.Count(cmd.Long, "\n")
		lines := intro
		for _, s := range helpSections(cmd) {
			if s.body != "" && !strings.HasSuffix(s.title, "lags") {
				lines += 3 + strings.Count(s.body, "\n")
			}
		}
		if cmd == root {
			continue // the root lists all commands and topics
		}
		if lines > maxLines || intro > maxIntro {
			t.Errorf("%s: %d lines without flags, %d of them the description; want at most %d and %d", cmd.CommandPath(), lines, intro, maxLines, maxIntro)
		}
	}
	migrate, _, err := root.Find([]string{"migrate"})
	if err != nil {
		t.Fatal(err)
	}
	if n := 1 + strings.Count(migrate.Long, "\n"); n > 15 {
		t.Errorf("the description of migrate has %d lines, want at most 15", n)
	}
	for _, g := range flagGroups {
		for _, name := range g.flags {
			if migrate.Flags().Lookup(name) == nil {
				t.Errorf("migrate has no flag --%s, but group %q lists it", name, g.title)
			}
		}
	}
}

func TestHelpOfTopicsAndCommands(t *testing.T) {
	for args, want := range map[string]string{
		"help":                "Topics of decamp help:",
		"help warm":           "Warm migration",
		"help selection":      "poweredOn",
		"help migrate":        "Target flags:",
		"help plan run":       "decamp plan run FILE",
		"--version":           "decamp ",
		"migrate --help":      "Transport flags:",
		"help help":           "Topics:",
		"__complete help war": "warm",
	} {
		r := newTestProgram(t)
		if code := r.run(t.Context(), strings.Fields(args)); code != 0 {
			t.Errorf("%s: exit code %d: %s", args, code, r.stderr())
		}
		mustContain(t, r.out.String(), want)
	}
	for args, want := range map[string]string{"help wram": "did you mean: decamp help warm", "help plan rum": "decamp help", "help xyzzy": "list them: decamp help"} {
		r := newTestProgram(t)
		if code := r.run(t.Context(), strings.Fields(args)); code != 2 {
			t.Errorf("%s: exit code %d", args, code)
		}
		mustContain(t, r.stderr(), want)
	}
	for _, topic := range helpTopics() {
		if topic.title == "" || topic.body == "" {
			t.Errorf("topic %s is empty", topic.name)
		}
		for line := range strings.Lines(topic.body) {
			if len(strings.TrimRight(line, "\n")) > 106 {
				t.Errorf("topic %s: the line is too long: %s", topic.name, line)
			}
		}
	}
}
