package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble/mover"
	"github.com/decamp/decamp/internal/fault"
)

const workerHelp = `
Move VMs of plans on this machine, onto its own storage, as one of several. All of them meet in
one PostgreSQL; there is nothing else that they have to reach of each other.

--offer names the folders that VMs may go to here. A folder that other workers offer, too, is
known to be the same storage by a file in it: if a worker dies, another one that offers its
storage goes on with its VMs; without one they wait for it to come back under its name.

Passwords stay on each machine: a plan names credentials and places, which an administrator
binds to addresses in the access file of each worker. The password of the database is in
$PGPASSFILE or ~/.pgpass (docs/server.md). A database on another machine is used by TLS with
its certificate verified (sslmode=verify-full).

Plans in the database are signed with the fleet's key, which decamp key new makes: all servers
and workers have the same file. A plan without its signature is refused. Commands that plans run
(hooks) are run with --allow-hooks only, and only of plans that an admin submitted.
SIGTERM has the worker give its VMs back and end.
`

const workerExamples = `
decamp worker --join postgres://decamp@db.example.com/decamp --offer /srv/vm
decamp worker --join postgres://decamp@db/decamp --offer /mnt/shared --name rack2 --vms 40
`

func newWorker(a *app) *cobra.Command {
	var o workerOptions
	var m meetingFlags
	cmd := &cobra.Command{
		Use: "worker --join URL --offer FOLDER", Short: "Move VMs of plans here, as one of several machines", Long: text(workerHelp), Example: text(workerExamples),
		Args: takes(), Annotations: exits(
			exit{fault.NotFound, "a folder or the fleet key is not there"},
			exit{fault.Denied, "the database refuses the password or is not verified, the fleet key may be read by others, or a folder cannot be written"},
			exit{fault.Unreachable, "the database does not answer"},
			exit{fault.Conflict, "another process has the state directory, or took this worker's name"}),
		RunE: a.logged(func(cmd *cobra.Command, _ []string) error {
			switch {
			case !strings.HasPrefix(m.db, "postgres://") && !strings.HasPrefix(m.db, "postgresql://"):
				return badUsage(cmd, "--join %q: want postgres://USER@HOST/NAME; one machine alone needs no worker: decamp plan run", m.db)
			case len(o.folders) == 0:
				return badUsage(cmd, "--offer is missing: want a folder that VMs may go to")
			case o.vms < 1 || o.trials < 1:
				return badUsage(cmd, "--vms %d --trials %d: want 1 or more", o.vms, o.trials)
			}
			return a.work(cmd.Context(), m, o)
		}),
	}
	cmd.Flags().StringVar(&m.db, "join", "", "`URL` of the database, without a password")
	m.registerKey(cmd)
	m.registerInsecure(cmd)
	o.register(a, cmd)
	return cmd
}

func (a *app) work(ctx context.Context, m meetingFlags, o workerOptions) (err error) {
	if _, err := a.Access(); err != nil { // before the first plan needs it
		return err
	}
	r, url, err := a.openRoster(ctx, m)
	if err != nil {
		return err
	}
	defer closing(&err, r.Close)
	n, err := mover.OpenNode(ctx, &a.Assembler, r, mover.NodeOptions{
		Name: o.name, Folders: o.folders, VMs: o.vms, Trials: o.trials, Hooks: o.hooks, Shared: sharedURL(url), Insecure: m.insecure,
	})
	if err != nil {
		return err
	}
	defer closing(&err, n.Close)
	if !a.json {
		fmt.Fprintf(a.err, "Worker %s offers %s for %s at a time.\n", n.Worker.Name, strings.Join(slices.Sorted(slices.Values(o.folders)), ", "), count(o.vms, "VM"))
	}
	return n.Run(ctx)
}
