package main

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/server/client"
)

const serverHelp = `
Remember servers in the user's config file. decamp server add shows the fingerprint of the
server's certificate and requires a confirmation. Then --server NAME, or the default, selects
the server and accepts only that certificate.
`

const serverExamples = `
decamp server add prod https://decamp.example.com:8470 --token-file /home/ada/decamp.token
decamp server default prod
decamp status --server prod
`

// newServer returns the command decamp server with its subcommands.
func newServer(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: serverName + " COMMAND", Short: "Remember servers, and select the default", Long: trimHelp(serverHelp), Example: trimHelp(serverExamples),
		Annotations: exitCodes(), Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	missing := exit{fault.NotFound, "the user's config file does not have the server"}
	var s config.Server
	add := newServerCommand(p, "add NAME URL", "Remember a server", "Read the server's certificate, show its fingerprint, and store both after a confirmation.",
		func(ctx context.Context, e config.Editor, args []string) error {
			return addServer(ctx, p, e, args[0], args[1], s)
		},
		exit{fault.Denied, "the certificate is not confirmed"}, exit{fault.Unreachable, "the server does not answer"}, exit{fault.Conflict, "a server of that name exists"})
	add.Flags().StringVar(&s.Fingerprint, "fingerprint", "", "`SHA-256` of the server's certificate to accept, without a question")
	add.Flags().StringVar(&s.TokenFile, "token-file", "", "`FILE` with the token")
	cmd.AddCommand(add,
		newServerCommand(p, "list", "List the servers", "List the servers of both config files.", func(_ context.Context, e config.Editor, _ []string) error { return listServers(p, e) }),
		newServerCommand(p, "remove NAME", "Forget a server", "Remove a server from the user's config file.", func(_ context.Context, e config.Editor, args []string) error { return e.RemoveServer(args[0]) }, missing),
		newServerCommand(p, "default NAME", "Select the default server", "Select the server of commands without --server and --db.",
			func(_ context.Context, e config.Editor, args []string) error {
				return e.SetDefaultServer(p.config, args[0])
			}, missing))
	return cmd
}

// newServerCommand returns a command that calls do with the editor of the user's config file.
func newServerCommand(p *program, use, short, long string, do func(context.Context, config.Editor, []string) error, more ...exit) *cobra.Command {
	words := strings.Fields(use)
	return &cobra.Command{
		Use: use, Short: short, Long: long, Example: strings.Replace("decamp server "+strings.Replace(use, "NAME", "prod", 1), "URL", "https://decamp.example.com:8470", 1),
		Args: exactArgs(words[1:]...), Annotations: exitCodes(more...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			return do(cmd.Context(), config.Editor{Path: p.config.User, Flags: flagNames(cmd.Root())}, args)
		}),
	}
}

// addServer stores a server after the user has confirmed its certificate.
func addServer(ctx context.Context, p *program, e config.Editor, name, url string, s config.Server) error {
	given := s.Fingerprint
	s.URL, s.Fingerprint = url, ""
	if s.TokenFile != "" {
		path, err := filepath.Abs(s.TokenFile)
		if err != nil {
			return err
		}
		s.TokenFile = path
	}
	err := e.AddServer(p.config, name, s, func(url string) (string, error) {
		id, err := client.ReadIdentity(ctx, url)
		if err != nil {
			return "", err
		}
		return id.Fingerprint, p.assembler.ConfirmServer(ctx, url, id.Fingerprint, id.Trusted, given)
	})
	if err == nil {
		p.out.note("Server %s is remembered. Use it with --server %s, or make it the default: decamp server default %s", name, name, name)
	}
	return err
}

// listServers prints the servers of both files.
func listServers(p *program, e config.Editor) error {
	known, err := config.Load(p.config, e.Flags)
	if err != nil {
		return err
	}
	list := known.ListServers()
	if p.out.json {
		return p.out.printJSON(map[string]any{"servers": list})
	}
	t := newTable("NAME", "URL", "FINGERPRINT", "DEFAULT")
	for _, s := range list {
		mark := ""
		if s.Default {
			mark = "yes"
		}
		t.addRow(s.Name, fault.Printable(s.URL), s.Fingerprint, mark)
	}
	t.writeTo(p.out)
	return nil
}
