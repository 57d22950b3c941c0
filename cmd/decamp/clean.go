package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
)

const cleanHelp = `
Revert changes on a host that decamp could not revert itself: a mounted datastore of a
landing, a copy that still runs on the host, an SSH service that decamp started, or the
snapshot of a warm migration or of decamp nbd.

decamp records each change before it makes it, until it is reverted. Every migration from the
host reverts recorded changes first, so this command is for hosts without further migrations.
` + "`decamp runs`" + ` lists the recorded changes. --forget removes the records of a host that does not
exist any more; it does not connect to the host.
`

const cleanExamples = `
decamp clean esxi://root@esx1
decamp clean esxi://root@esx1 --forget
`

// cleanCommand is decamp clean.
type cleanCommand struct {
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	login     assemble.Login      // login to the source
	ssh       assemble.SSHOptions // login to hosts by SSH
	forget    bool                // remove the records without reverting the changes
}

// newClean returns the command decamp clean.
func newClean(p *program) *cobra.Command {
	cl := &cleanCommand{out: p.out, assembler: p.assembler}
	cmd := &cobra.Command{
		Use:     "clean URL",
		Short:   "Revert leftover changes on a host",
		Long:    trimHelp(cleanHelp) + "\n\n" + trimHelp(sourceHelp),
		Example: trimHelp(cleanExamples),
		Args:    exactArgs("URL"),
		Annotations: exitCodes(
			exit{fault.NotFound, "the host of a record does not exist any more: see --forget"},
			exit{fault.Denied, "wrong password, missing privilege, or unknown or changed certificate"},
			exit{fault.Unreachable, "the address does not answer"},
			exit{fault.Conflict, "the host has a file of the datastore open, or another decamp process uses the state directory"},
			exit{fault.Unsupported, "a newer decamp made the record"},
			exit{fault.Corrupt, "a record cannot be read; it stays"}),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			return cl.runClean(cmd.Context(), args[0])
		}),
	}
	cmd.Flags().BoolVar(&cl.forget, "forget", false, "remove the records without connecting to the host")
	registerSSH(&cl.ssh, cmd.Flags())
	registerLogin(&cl.login, cmd)
	return cmd
}

// runClean reverts or forgets the recorded changes of one server.
func (cl *cleanCommand) runClean(ctx context.Context, rawURL string) (err error) {
	u, err := esx.ParseURL(rawURL)
	if err != nil {
		return err
	}
	state, err := cl.assembler.StateDir()
	if err != nil {
		return err
	}
	unlock, err := cl.assembler.LockState(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, unlock)
	store := cleanup.NewStore(state)
	list, failed := recordsOf(store, assemble.ServerOf(u))
	var done []cleanup.Record
	switch {
	case cl.forget:
		done, err = list, forgetAll(store, list)
	case len(list) > 0:
		done, err = cl.cleanHost(ctx, u, store)
		failed = nil // it reported them
	}
	return errors.Join(cl.printCleaned(assemble.ServerOf(u), done), err, failed)
}

// cleanHost logs in to the server at u and reverts its recorded changes.
func (cl *cleanCommand) cleanHost(ctx context.Context, u *url.URL, store *cleanup.Store) (_ []cleanup.Record, err error) {
	session, err := cl.assembler.Dial(ctx, u.String(), cl.login)
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, session.Close)
	shells := cl.assembler.NewHostShells(session, u, cl.login, cl.ssh, store)
	defer joinClose(&err, shells.Close)
	return assemble.RevertChanges(ctx, shells)
}

// recordsOf returns the records of one server. The error has the records that cannot be read.
func recordsOf(store *cleanup.Store, server string) (list []cleanup.Record, err error) {
	all, err := store.ListLeft()
	for _, r := range all {
		if r.Server == server {
			list = append(list, r)
		}
	}
	return list, err
}

// forgetAll removes records without reverting the changes.
func forgetAll(store *cleanup.Store, list []cleanup.Record) error {
	var errs []error
	for _, r := range list {
		errs = append(errs, store.Remove(r.ID()))
	}
	return errors.Join(errs...)
}

// printCleaned prints the reverted or removed records.
func (cl *cleanCommand) printCleaned(server string, done []cleanup.Record) error {
	if cl.out.json {
		word := "putBack"
		if cl.forget {
			word = "forgotten"
		}
		return cl.out.printJSON(map[string][]cleanup.Record{word: append([]cleanup.Record{}, done...)})
	}
	if len(done) == 0 {
		_, err := fmt.Fprintf(cl.out, "%s has no recorded changes.\n", fault.Printable(server))
		return err
	}
	for _, r := range done {
		form := "Reverted on host %s: %s.\n"
		if cl.forget {
			form = "Removed the record of host %s: %s.\n"
		}
		if _, err := fmt.Fprintf(cl.out, form, fault.Printable(r.HostName()), fault.Printable(r.Text)); err != nil {
			return err
		}
	}
	return nil
}
