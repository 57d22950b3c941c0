package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/suggest"
)

const helpHelp = `
Print the help of a command or of a topic. decamp COMMAND --help prints the same text.
`

// newHelp returns the command decamp help.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:         helpName + " [COMMAND | TOPIC]",
		Short:       "Print the help of a command or a topic",
		Long:        trimHelp(helpHelp),
		Example:     "decamp help migrate\ndecamp help warm",
		Annotations: exitCodes(),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return helpNames(cmd.Root()), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Root().Help()
			}
			return printHelp(cmd.OutOrStdout(), cmd.Root(), args)
		},
	}
}

// printHelp prints the help of the command with these words, or of the topic.
func printHelp(w io.Writer, root *cobra.Command, words []string) error {
	if found, rest, err := root.Find(words); err == nil && len(rest) == 0 && found != root {
		return found.Help()
	}
	if len(words) == 1 {
		for _, t := range helpTopics() {
			if t.name == words[0] {
				_, err := fmt.Fprintf(w, "%s\n\n%s\n", t.title, t.body)
				return err
			}
		}
	}
	name := strings.Join(words, " ")
	err := fault.New(fault.Invalid, "%q is not a command or a help topic", name)
	if near, ok := suggest.Word(name, helpNames(root)); ok {
		return err.WithHint("did you mean: decamp help %s", near)
	}
	return err.WithHint("list them: decamp help")
}

// helpNames returns the names that decamp help accepts in one word.
func helpNames(root *cobra.Command) (names []string) {
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	for _, t := range helpTopics() {
		names = append(names, t.name)
	}
	return names
}
