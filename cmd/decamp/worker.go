package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/assemble/mover"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/systemd"
	"github.com/decamp/decamp/internal/units"
)

const workerHelp = `
Migrate VMs of plans on this machine to its storage, as one of several workers. All workers
use one PostgreSQL database; they do not connect to each other.

--offer names the folders to which VMs may go on this machine. A file in each folder
identifies its storage, so workers detect that they offer the same one. If a worker dies,
another worker with the same storage continues its VMs. Without one, they wait until the
worker returns under its name.

Passwords stay on each machine: a plan names credentials and places, which an administrator
binds to addresses in the access file of each worker. The password of the database is in
$PGPASSFILE or ~/.pgpass (docs/server.md). A database on another machine is used over TLS with
its certificate verified (sslmode=verify-full).

Plans in the database are signed with the fleet key, which decamp key new creates: all servers
and workers require the same file. A plan without a valid signature is refused. Commands of
plans (hooks) are run only with --allow-hooks, and only for plans that an admin submitted. On
SIGTERM the worker returns its VMs and ends.
`

const workerExamples = `
decamp worker --join postgres://decamp@db.example.com/decamp --offer /srv/vm
decamp worker --join postgres://decamp@db/decamp --offer /mnt/shared --name rack2 --vms 40
`

// workerCommand is decamp worker.
type workerCommand struct {
	workerFlags
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	fleet     fleetFlags          // flags of the fleet
	notify    assemble.Notify     // receivers of notifications
}

// newWorker returns the command decamp worker.
func newWorker(p *program) *cobra.Command {
	wc := &workerCommand{out: p.out, assembler: p.assembler, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "worker --join URL --offer FOLDER", Short: "Migrate VMs of plans on this machine, as one of several", Long: trimHelp(workerHelp), Example: trimHelp(workerExamples),
		Args: exactArgs(), Annotations: exitCodes(
			exit{fault.NotFound, "a folder or the fleet key does not exist"},
			exit{fault.Denied, "the database refuses the password or is not verified, other users may read the fleet key, or a folder cannot be written"},
			exit{fault.Unreachable, "the database does not answer"},
			exit{fault.Conflict, "another process uses the state directory or the name of this worker"}),
		RunE: p.withLog(func(cmd *cobra.Command, _ []string) error {
			wc.fleet.db = cmp.Or(wc.fleet.db, p.assembler.Env(dbEnv))
			switch {
			case !strings.HasPrefix(wc.fleet.db, "postgres://") && !strings.HasPrefix(wc.fleet.db, "postgresql://"):
				return badUsage(cmd, "--join %q: want postgres://USER@HOST/NAME; a single machine requires no worker: use decamp plan run", wc.fleet.db)
			case len(wc.folders) == 0:
				return badUsage(cmd, "--offer is missing: want a folder to which VMs may go")
			}
			if err := checkCounts(cmd, wc.vms, wc.trials); err != nil {
				return err
			}
			return wc.runWorker(cmd.Context())
		}),
	}
	cmd.Flags().StringVar(&wc.fleet.db, "join", "", "`URL` of the database, without a password (default $"+dbEnv+")")
	wc.fleet.registerKey(cmd)
	wc.fleet.registerInsecure(cmd)
	wc.registerFlags(p.assembler, cmd)
	registerNotify(&wc.notify, cmd.Flags())
	return cmd
}

// runWorker executes VMs of plans until ctx ends.
func (wc *workerCommand) runWorker(ctx context.Context) (err error) {
	if _, err := wc.assembler.Access(); err != nil { // before the first plan needs it
		return err
	}
	r, url, err := wc.fleet.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, r.Close)
	n, err := mover.OpenNode(ctx, wc.assembler, r, mover.NodeOptions{
		Name: wc.name, Folders: wc.folders, VMs: wc.vms, Trials: wc.trials, Hooks: wc.hooks, Shared: sharedURL(url), Insecure: wc.fleet.insecure, Notify: wc.notify,
	})
	if err != nil {
		return err
	}
	defer joinClose(&err, n.Close)
	wc.out.note("Worker %s offers %s for %s at a time.", n.Worker.Name, strings.Join(slices.Sorted(slices.Values(wc.folders)), ", "), units.Count(wc.vms, "VM"))
	finish, err := systemd.Announce(ctx, "worker "+n.Worker.Name)
	defer finish()
	if err != nil {
		wc.out.log.Warn("no notification to systemd", "err", err)
	}
	return n.Run(ctx)
}
