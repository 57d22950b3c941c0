package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/server"
)

const tokenHelp = `
Create, list and remove the tokens for decamp serve. A token has a name and a role. The role
view sees everything except the audit trail. The role operate submits plans, gives commands
and sets limits. The role admin also submits plans that run commands, drops plans, drains
workers and reads the audit trail. The state directory has only the SHA-256 of a token.
`

const tokenExamples = `
decamp token add alice --role operate > alice.token
decamp token add prometheus --role view --ttl 8760h
decamp token list
decamp token remove alice
`

// newToken returns the command decamp token with its subcommands.
func newToken(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token COMMAND", Short: "Create, list and remove tokens of servers", Long: trimHelp(tokenHelp), Example: trimHelp(tokenExamples),
		Annotations: exitCodes(), Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenAdd(p), newTokenList(p), newTokenRemove(p))
	return cmd
}

// newTokenAdd returns the command decamp token add.
func newTokenAdd(p *program) *cobra.Command {
	var role string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "add NAME --role ROLE", Short: "Create a token and print it", Args: exactArgs("NAME"),
		Long:        trimHelp("\nCreate a token and print it. decamp does not store it: a lost token must be replaced.\n"),
		Example:     "decamp token add alice --role operate > alice.token",
		Annotations: exitCodes(exit{fault.Conflict, "a token of that name exists"}), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if err := checkAboveZero(cmd, "ttl", ttl); err != nil {
				return err
			}
			state, err := p.assembler.StateDir()
			if err != nil {
				return err
			}
			secret, err := server.NewTokens(state).Add(args[0], server.Role(role), ttl)
			if err != nil {
				return err
			}
			if p.out.json {
				return p.out.printJSON(map[string]string{"name": args[0], "role": role, "token": secret})
			}
			_, err = fmt.Fprintln(p.out, secret)
			return err
		}),
	}
	cmd.Flags().StringVar(&role, "role", string(server.View), "`view, operate or admin`")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "`TIME` after which the token expires (default never)")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"view", "operate", "admin"}, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
	return cmd
}

// newTokenList returns the command decamp token list.
func newTokenList(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tokens", Args: exactArgs(), Annotations: exitCodes(),
		Long: trimHelp("\nList the tokens by name, with their roles and expiry times.\n"), Example: "decamp token list",
		RunE: p.withLog(func(*cobra.Command, []string) error {
			state, err := p.assembler.StateDir()
			if err != nil {
				return err
			}
			tokens, err := server.NewTokens(state).List()
			if p.out.json {
				if perr := p.out.printJSON(map[string]any{"tokens": append([]server.Token{}, tokens...)}); err == nil {
					err = perr
				}
				return err
			}
			t := newTable("NAME", "ROLE", "CREATED", "EXPIRES")
			for _, each := range tokens {
				ends := "never"
				if !each.Expires.IsZero() {
					ends = each.Expires.Local().Format(time.DateTime)
				}
				t.addRow(each.Name, string(each.Role), each.Created.Local().Format(time.DateTime), ends)
			}
			t.writeTo(p.out)
			return err
		}),
	}
}

// newTokenRemove returns the command decamp token remove.
func newTokenRemove(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove a token", Args: exactArgs("NAME"),
		Long: trimHelp("\nRemove a token. It ends browser sessions of the token at once.\n"), Example: "decamp token remove alice",
		Annotations: exitCodes(exit{fault.NotFound, "the token does not exist"}), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(_ *cobra.Command, args []string) error {
			state, err := p.assembler.StateDir()
			if err != nil {
				return err
			}
			return server.NewTokens(state).Remove(args[0])
		}),
	}
}
