package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/credentials"
	"github.com/decamp/decamp/internal/fault"
)

const loginHelp = `
Store the password of a source or the token of a server for this user. Commands then use it if
neither a flag nor a variable sets another one. ACCOUNT is a URL, or a name in a config file.

--store keyring uses the keyring of the desktop (Secret Service, such as gnome-keyring).
--store file uses credentials.json in the user's config folder, with mode 600: root can read it.
decamp logout removes the secret.
`

// newLogin returns the commands decamp login and decamp logout.
func newLogin(p *program) (login, logout *cobra.Command) {
	var store, file string
	exits := exitCodes(exit{fault.NotFound, "no secret is stored"}, exit{fault.Denied, "the keyring is locked, or other users may read the file"}, exit{fault.Unreachable, "there is no keyring"})
	login = &cobra.Command{
		Use: "login ACCOUNT --store PLACE", Short: "Store a password or a token", Long: trimHelp(loginHelp), Args: exactArgs("ACCOUNT"),
		Example: "decamp login lab --store keyring\ndecamp login https://decamp.example.com:8470 --store file --secret-file decamp.token", Annotations: exits,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if store != string(credentials.Keyring) && store != string(credentials.File) {
				return badUsage(cmd, "--store %q: want keyring or file", store)
			}
			account, err := p.accountOf(cmd, args[0])
			if err != nil {
				return err
			}
			what := "password"
			if strings.Contains(account, "://") {
				what = "token"
			}
			secret, err := p.assembler.ReadSecret(cmd.Context(), what, account, file)
			if err != nil {
				return err
			}
			if err := p.assembler.Credentials().Set(cmd.Context(), account, secret, credentials.Place(store)); err != nil {
				return err
			}
			p.out.note("The %s of %s is stored in the %s. Remove it with: decamp logout %s", what, account, store, fault.Quote(args[0]))
			return nil
		}),
	}
	login.Flags().StringVar(&store, "store", "", "`PLACE` of the secret: keyring or file")
	login.Flags().StringVar(&file, "secret-file", "", "`FILE` with the password or the token (default a prompt)")
	logout = &cobra.Command{
		Use: "logout ACCOUNT", Short: "Remove a stored password or token", Long: "Remove the password or the token that decamp login stored. ACCOUNT is a URL, or a name\nin a config file.",
		Args: exactArgs("ACCOUNT"), Example: "decamp logout lab", Annotations: exits,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			account, err := p.accountOf(cmd, args[0])
			if err != nil {
				return err
			}
			return p.assembler.Credentials().Remove(context.WithoutCancel(cmd.Context()), account)
		}),
	}
	return login, logout
}

// accountOf returns the account of a URL, or of a name in a config file.
func (p *program) accountOf(cmd *cobra.Command, text string) (string, error) {
	s, err := config.Load(p.config, flagNames(cmd.Root()))
	if err != nil {
		return "", err
	}
	url, err := s.FindAccount(text)
	if err != nil {
		return "", err
	}
	return assemble.AccountOf(strings.TrimSuffix(url, "/"))
}
