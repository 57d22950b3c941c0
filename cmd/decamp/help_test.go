package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestCommandReference keeps docs/commands.md what the help texts say; -update writes it.
func TestCommandReference(t *testing.T) {
	root := newRoot(newRig(t).program)
	var b strings.Builder
	b.WriteString("# Commands\n\nMade from the help texts: `go test ./cmd/decamp -run CommandReference -update`.\n" +
		"`decamp-lab`, the emulated ESXi, is another program: [its flags](lab.md#the-program).\n")
	for _, cmd := range append([]*cobra.Command{root}, all(root)...) {
		writeReference(&b, cmd)
	}
	golden(t, filepath.Join("..", "..", "docs", "commands.md"), b.String())
}

// all lists the commands below cmd, each before its own.
func all(cmd *cobra.Command) []*cobra.Command {
	var list []*cobra.Command
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			list = append(append(list, c), all(c)...)
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

func TestEveryCommandDocumentsItself(t *testing.T) {
	for _, cmd := range all(newRoot(newRig(t).program)) {
		if cmd.Short == "" || cmd.Long == "" || cmd.Annotations[exitNote] == "" {
			t.Errorf("%s lacks a short text, a long text or exit codes", cmd.Name())
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if len(strings.TrimRight(line, "\n")) > 96 {
				t.Errorf("%s: help line is too long: %s", cmd.Name(), line)
			}
		}
	}
}

func TestHelpIsTheSameByEveryDoor(t *testing.T) {
	var first string
	for _, args := range []string{"ls --help", "ls -h"} {
		r := newRig(t)
		if code := r.run(t.Context(), strings.Fields(args)); code != 0 {
			t.Fatalf("%s: exit code %d: %s", args, code, r.stderr())
		}
		if first == "" {
			first = r.out.String()
		}
		if r.out.String() != first {
			t.Errorf("%s shows another help", args)
		}
	}
	golden(t, "testdata/help-ls.txt", first)
}

func TestCompletionScripts(t *testing.T) {
	for shell, word := range map[string]string{"bash": "__start_decamp", "zsh": "#compdef decamp", "fish": "complete -c decamp"} {
		r := newRig(t)
		if code := r.run(t.Context(), []string{"completion", shell}); code != 0 {
			t.Fatalf("%s: exit code %d: %s", shell, code, r.stderr())
		}
		mustContain(t, r.out.String(), word)
	}
}

func TestCompletionOffersCommandsAndNoNames(t *testing.T) {
	r := newRig(t)
	r.run(t.Context(), []string{"__complete", "m"})
	mustContain(t, r.out.String(), "migrate")
	r = newRig(t)
	r.run(t.Context(), []string{"__complete", "migrate", "esxi://root@192.0.2.1", ""})
	if got := r.out.String(); got != ":4\n" { // ShellCompDirectiveNoFileComp
		t.Errorf("completing a VM's name gave %q", got)
	}
}

func TestCompletionKnowsTheWordsOfFlags(t *testing.T) {
	for flag, want := range map[string]string{"--format": "raw\nqcow2\n:4", "--domain-type": "kvm\nqemu\n:4", "--transport": "https\nnfc\nlanding\n:4"} {
		r := newRig(t)
		r.run(t.Context(), []string{"__complete", "migrate", flag, ""})
		if !strings.HasPrefix(r.out.String(), want) {
			t.Errorf("%s: %q", flag, r.out)
		}
	}
}
