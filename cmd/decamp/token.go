package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/server"
)

const tokenHelp = `
Make, list and end the tokens that decamp serve lets people and programs in with. A token has a
name and a role: view sees everything but the audit trail; operate submits plans, gives orders
and sets limits; admin may also submit plans that run commands, drop plans, drain workers and
read the audit trail. Only its SHA-256 is kept, in the state directory.
`

const tokenExamples = `
decamp token add alice --role operate > alice.token
decamp token add prometheus --role view --ttl 8760h
decamp token list
decamp token remove alice
`

func newToken(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token COMMAND", Short: "Say who may come in at a server", Long: trimHelp(tokenHelp), Example: trimHelp(tokenExamples),
		Annotations: exitCodes(), Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenAdd(p), newTokenList(p), newTokenRemove(p))
	return cmd
}

func newTokenAdd(p *program) *cobra.Command {
	var role string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "add NAME --role ROLE", Short: "Make a token and print it, once", Args: exactArgs("NAME"),
		Long:        trimHelp("\nCreate a token and print it. decamp does not store it: a lost token must be replaced by another one.\n"),
		Example:     "decamp token add alice --role operate > alice.token",
		Annotations: exitCodes(exit{fault.Conflict, "there is a token of that name"}), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(_ *cobra.Command, args []string) error {
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
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "`TIME` after which it ends (default never)")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"view", "operate", "admin"}, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
	return cmd
}

func newTokenList(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tokens", Args: exactArgs(), Annotations: exitCodes(),
		Long: trimHelp("\nList the tokens by name, with their roles and how long they are valid.\n"), Example: "decamp token list",
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
			t := newTable("NAME", "ROLE", "MADE", "ENDS")
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

func newTokenRemove(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "End a token", Args: exactArgs("NAME"),
		Long: trimHelp("\nEnd a token, and the sessions of browsers that were begun with it, at once.\n"), Example: "decamp token remove alice",
		Annotations: exitCodes(exit{fault.NotFound, "there is no such token"}), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(_ *cobra.Command, args []string) error {
			state, err := p.assembler.StateDir()
			if err != nil {
				return err
			}
			return server.NewTokens(state).Remove(args[0])
		}),
	}
}
