package warm

import (
	"context"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/sleep"
)

// A drivenRun is a warm run in the process that executes it. Its steps run one after the other. It
// implements migrate.WarmRun.
type drivenRun struct {
	run        *migrate.Run  // the run for work outside of steps
	orders     *commandCache // commands, read at intervals of the options' clock
	watched    *commandCache // commands, read at intervals of the real clock
	rehearsals *rehearsals   // rehearsals of the run

	snapshotsRemoved bool // snapshots that other processes left at the source are removed
	roundDone        bool // this process has completed a round, so the images are up to date
}

// watchEvery is how often a run checks for its cancellation, in any step.
const watchEvery = 3 * time.Second

// Drive implements migrate.WarmRun. Discard undoes the changes of a canceled run.
func (d *drivenRun) Drive(ctx context.Context, drive func(context.Context) error) error {
	id := d.run.Record.Plan.ID
	defer d.watched.forget(id)
	defer d.orders.forget(id)
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	d.rehearsals.setContext(ctx)
	defer d.rehearsals.stop(errRunEnded)
	watching.Go(func() { d.watchCommands(ctx, stop) })
	return drive(ctx)
}

// Guard implements migrate.WarmRun: writes do not affect the running rehearsal.
func (d *drivenRun) Guard(key int32, t disk.Target) disk.Target {
	return d.rehearsals.guardTarget(key, t)
}

// watchCommands calls stop when a command cancels the run, and starts requested rehearsals while the
// run waits for its transfer slot. It returns when ctx ends.
func (d *drivenRun) watchCommands(ctx context.Context, stop func()) {
	for {
		switch k, err := d.watched.commandsOf(d.run.Record.Plan.ID, time.Now()); {
		case err != nil:
		case k.order == journal.GiveUp:
			d.run.UnlessLate(stop)
		case k.order != journal.CutOver:
			d.rehearsals.startIfRequested(k)
		}
		if sleep.For(ctx, untilTick(time.Now(), watchEvery)) != nil {
			return
		}
	}
}

// A migration is a warm run as one of its steps uses it: the run with its record, and the state of this
// process. It belongs to that step.
type migration struct {
	driven    *drivenRun      // state of the run in this process; nil outside of Migrate
	run       *migrate.Run    // run of the step
	record    *migrate.Record // record of run
	snapshots *snapshots      // snapshots of the VM
}

// newMigration returns the migration of a step.
func newMigration(r *migrate.Run) *migration {
	m := &migration{run: r, record: r.Record, snapshots: &snapshots{run: r}}
	m.driven, _ = r.Warm.(*drivenRun)
	return m
}
