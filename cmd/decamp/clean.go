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
Put back what decamp changed on a host and could not put back itself: a datastore of a
landing that is still mounted, a copy that goes on there, SSH that was started, the
snapshot of a warm migration.

Each change is on record before it is made, until it was taken back. Every migrate that
logs in to the host does the same first, so this command is for hosts that nothing more is
moved from. ` + "`decamp runs`" + ` lists what is on record. --forget drops the records of a host that
is no more; it talks to nobody.
`

const cleanExamples = `
decamp clean esxi://root@esx1
decamp clean esxi://root@esx1 --forget
`

// cleanCommand is decamp clean.
type cleanCommand struct {
	out       *output
	assembler *assemble.Assembler
	login     assemble.Login
	ssh       assemble.SSHOptions
	forget    bool
}

func newClean(p *program) *cobra.Command {
	cl := &cleanCommand{out: p.out, assembler: p.assembler}
	cmd := &cobra.Command{
		Use:     "clean URL",
		Short:   "Revert leftover changes on a host",
		Long:    trimHelp(cleanHelp) + "\n\n" + trimHelp(sourceHelp),
		Example: trimHelp(cleanExamples),
		Args:    exactArgs("URL"),
		Annotations: exitCodes(
			exit{fault.NotFound, "the host of a record is not there any more: see --forget"},
			exit{fault.Denied, "wrong password, missing privilege, certificate unknown or changed"},
			exit{fault.Unreachable, "the address does not answer"},
			exit{fault.Conflict, "the host holds a file open there, or another decamp works in the state directory"},
			exit{fault.Unsupported, "a newer decamp made the record"},
			exit{fault.Corrupt, "a record cannot be read; it stays"}),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			return cl.runClean(cmd.Context(), args[0])
		}),
	}
	cmd.Flags().BoolVar(&cl.forget, "forget", false, "drop the records and ask no host")
	registerSSH(&cl.ssh, cmd.Flags())
	registerLogin(&cl.login, cmd)
	return cmd
}

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

func (cl *cleanCommand) cleanHost(ctx context.Context, u *url.URL, store *cleanup.Store) (_ []cleanup.Record, err error) {
	session, err := cl.assembler.Dial(ctx, u.String(), cl.login)
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, session.Close)
	shells := cl.assembler.NewHostShells(session, u, cl.login, cl.ssh, store)
	defer joinClose(&err, shells.Close)
	return assemble.PutBack(ctx, shells)
}

// recordsOf lists the records of one server, and reports unreadable ones.
func recordsOf(store *cleanup.Store, server string) (list []cleanup.Record, err error) {
	all, err := store.List()
	for _, r := range all {
		if r.Server == server {
			list = append(list, r)
		}
	}
	return list, err
}

func forgetAll(store *cleanup.Store, list []cleanup.Record) error {
	var errs []error
	for _, r := range list {
		errs = append(errs, store.Remove(r.ID()))
	}
	return errors.Join(errs...)
}

func (cl *cleanCommand) printCleaned(server string, done []cleanup.Record) error {
	if cl.out.json {
		word := "putBack"
		if cl.forget {
			word = "forgotten"
		}
		return cl.out.printJSON(map[string][]cleanup.Record{word: append([]cleanup.Record{}, done...)})
	}
	if len(done) == 0 {
		_, err := fmt.Fprintf(cl.out, "Nothing was put back on %s.\n", printable(server))
		return err
	}
	for _, r := range done {
		form := "Host %s has no %s any more.\n"
		if cl.forget {
			form = "That host %s had %s is forgotten.\n"
		}
		if _, err := fmt.Fprintf(cl.out, form, printable(r.Where()), printable(r.Text)); err != nil {
			return err
		}
	}
	return nil
}
