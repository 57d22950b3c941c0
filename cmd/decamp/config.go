package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/units"
)

const configHelp = `
Show and check the config files. They name sources, targets and servers, and set defaults of
flags:

    sources:
      lab: {url: esxi://root@esx1, passwordFile: /etc/decamp/esx1.password}
    targets:
      store: dir:/srv/vm
    servers:
      prod: {url: https://decamp.example.com:8470, tokenFile: /etc/decamp/token}
    defaults:
      transport: nfc
      server: prod

The name of a source replaces URL, the name of a target replaces a value of --to, and the name
of a server replaces the URL of --server. A flag has precedence, then its environment variable,
the user's file, the machine's file, and the built-in default. The files contain no passwords.
`

const configExamples = `
decamp config show
decamp config check
`

// newConfig returns the command decamp config with its subcommands.
func newConfig(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: configName + " COMMAND", Short: "Show and check the config files", Long: trimHelp(configHelp), Example: trimHelp(configExamples),
		Annotations: exitCodes(), Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	refused := exit{fault.Denied, "other users may write or own a config file, or it cannot be read"}
	for _, c := range []struct {
		name, short, long string
		run               func(p *program, root *cobra.Command) error
	}{
		{"show", "Show the effective settings", "Print the effective settings with their origins: file and line, or environment variable.", showConfig},
		{"path", "Print the paths of the config files", "Print the paths of both files: first the machine's, then the user's. The files may be missing.", printConfigPaths},
		{"check", "Check the config files", "Check both files, and print all mistakes with their remedies.", checkConfig},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: c.name, Short: c.short, Long: c.long, Example: "decamp config " + c.name, Args: exactArgs(), Annotations: exitCodes(refused),
			ValidArgsFunction: cobra.NoFileCompletions,
			RunE:              p.withLog(func(cmd *cobra.Command, _ []string) error { return c.run(p, cmd.Root()) }),
		})
	}
	return cmd
}

// showConfig prints the effective settings.
func showConfig(p *program, root *cobra.Command) error {
	s, err := config.Load(p.config, flagNames(root))
	if err != nil {
		return err
	}
	list := s.List(p.assembler.Env)
	if p.out.json {
		return p.out.printJSON(map[string]any{"settings": list})
	}
	t := newTable("SETTING", "VALUE", "ORIGIN")
	for _, each := range list {
		t.addRow(fault.Printable(each.Key), fault.Printable(each.Value), fault.Printable(each.Origin))
	}
	t.writeTo(p.out)
	return nil
}

// printConfigPaths prints the paths of both files.
func printConfigPaths(p *program, _ *cobra.Command) error {
	if p.out.json {
		return p.out.printJSON(map[string]string{"system": p.config.System, "user": p.config.User})
	}
	_, err := fmt.Fprintln(p.out, strings.TrimSpace(p.config.System+"\n"+p.config.User))
	return err
}

// checkConfig prints all mistakes of both files. It tries each default with each command that has the flag.
func checkConfig(p *program, root *cobra.Command) error {
	exist, found, err := config.Check(p.config, flagNames(root))
	if err == nil && len(found) == 0 {
		err = checkDefaults(p, root)
	}
	if p.out.json {
		if perr := p.out.printJSON(map[string]any{"files": append([]string{}, exist...), "problems": append(config.Problems{}, found...)}); err == nil {
			err = perr
		}
	} else {
		for _, each := range found {
			fmt.Fprintf(p.out, "%s\n", fault.Printable(each.String()))
			if each.Remedy != "" {
				fmt.Fprintf(p.out, "  Remedy: %s\n", fault.Printable(each.Remedy))
			}
		}
	}
	if err == nil && len(found) > 0 {
		err = fault.New(fault.Invalid, "the config files have %s", units.Count(len(found), "mistake")).WithHint("apply the remedy of each mistake, and check again")
	}
	if err == nil && !p.out.json {
		fmt.Fprintf(p.out, "%s, no mistakes\n", units.Count(len(exist), "config file"))
	}
	return err
}

// checkDefaults sets the defaults of both files in all commands.
func checkDefaults(p *program, root *cobra.Command) error {
	s, err := config.Load(p.config, flagNames(root))
	if err != nil {
		return err
	}
	for _, cmd := range commandsOf(root) {
		a := config.Applier{Settings: s, Env: func(string) string { return "" }, Flags: cmd.Flags()}
		if err := a.Apply("", nil); err != nil {
			return err
		}
	}
	return nil
}
