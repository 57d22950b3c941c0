package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/config"
)

// configName is the name of decamp config.
const configName = "config"

// serverName is the name of decamp server.
const serverName = "server"

// applySettings applies the config files to the flags and arguments of a command, before it runs.
func (p *program) applySettings(cmd *cobra.Command, args []string) error {
	if !usesSettings(cmd) {
		return nil // it works without the files, also with a mistake in one
	}
	commands := map[string]bool{} // commands, and whether they have a server
	for _, c := range commandsOf(cmd.Root()) {
		if usesSettings(c) {
			commands[strings.TrimPrefix(c.CommandPath(), "decamp ")] = c.Flags().Lookup("server") != nil
		}
	}
	p.out.followUps = config.NewFollowUps(cmd.Flags(), commands)
	s, err := config.Load(p.config, flagNames(cmd.Root()))
	if err != nil {
		return err
	}
	p.assembler.Settings = s
	return config.Applier{Settings: s, Env: p.assembler.Env, Flags: cmd.Flags()}.Apply(cmd.Use, args)
}

// usesSettings reports whether a command uses the config files and the state directory.
func usesSettings(cmd *cobra.Command) bool {
	words := strings.Fields(cmd.CommandPath())
	return !cmd.HasSubCommands() && !slices.Contains([]string{configName, serverName, helpName, "version", "completion"}, words[min(1, len(words)-1)])
}

// flagNames returns the names of the flags of all commands.
func flagNames(root *cobra.Command) (names []string) {
	for _, cmd := range commandsOf(root) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	}
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	slices.Sort(names)
	return slices.Compact(names)
}

// commandsOf returns all commands below cmd.
func commandsOf(cmd *cobra.Command) (list []*cobra.Command) {
	for _, c := range cmd.Commands() {
		list = append(append(list, c), commandsOf(c)...)
	}
	return list
}
