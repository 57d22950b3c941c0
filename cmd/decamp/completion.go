package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble/complete"
)

const completionHelp = `
Print the completion script of a shell. It completes commands, flags, known hosts, VMs, runs,
plans and names of limits. VMs are read from a host whose certificate is known, if
--password-file or $DECAMP_PASSWORD_FILE is set, in at most 0.2 s, and by decamp ls. They are
kept for five minutes in the user's cache folder. It never prompts. A name that a shell
would change is completed as a reference, such as vm-42. For --to it completes kinds, folders,
targets of config files and earlier runs, and parameters; the storages and networks of a target
are read from it with the login that its address names, within the same limits. bash completes
an address also after an open quote; zsh requires \? and \& instead.
`

const completionExamples = `
source <(decamp completion bash)                                 # this shell only
decamp completion bash > /etc/bash_completion.d/decamp           # all bash users
decamp completion zsh  > "${fpath[1]}/_decamp"
decamp completion fish > ~/.config/fish/completions/decamp.fish
`

// newCompletion returns the command decamp completion.
func newCompletion(p *program) *cobra.Command {
	return &cobra.Command{
		Use:         "completion SHELL",
		Short:       "Print the completion script for bash, zsh or fish",
		Long:        trimHelp(completionHelp),
		Example:     trimHelp(completionExamples),
		Args:        exactArgs("SHELL"),
		ValidArgs:   []string{"bash", "zsh", "fish"},
		Annotations: exitCodes(),
		RunE:        func(cmd *cobra.Command, args []string) error { return writeCompletion(p.out, cmd, args[0]) },
	}
}

// writeCompletion writes the completion script for a shell.
func writeCompletion(w io.Writer, cmd *cobra.Command, shell string) error {
	root := cmd.Root()
	switch shell {
	case "bash":
		if err := root.GenBashCompletionV2(w, true); err != nil {
			return err
		}
		_, err := io.WriteString(w, complete.BashTargets)
		return err
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	}
	return badUsage(cmd, "no completion for %q: want bash, zsh or fish", shell)
}
