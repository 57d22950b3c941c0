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

// A drivenRun is a warm run while this process drives it. Its steps come one after the other. It implements
// migrate.WarmRun.
type drivenRun struct {
	run        *migrate.Run  // outside of steps
	orders     *commandCache // commands, read at intervals of the options' clock
	watched    *commandCache // commands, read at intervals of the real clock
	rehearsals *rehearsals

	snapshotsRemoved bool // leftovers of other processes at the source are removed
	roundDone        bool // this process has done a round: the images are of it
}

// watchEvery is how often one looks, in whichever step it is, whether it is given up.
const watchEvery = 3 * time.Second

// Drive implements migrate.WarmRun. Discard undoes the changes of a discarded run.
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

// watchCommands calls stop when the run is ordered to be given up, and begins the rehearsals that are asked
// for while the run is in line for its turn. It returns when ctx ends.
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

// A migration is the state of a warm migration as one of its steps sees it: the run with its record, and
// what this process knows besides. It belongs to that step.
type migration struct {
	driven    *drivenRun
	run       *migrate.Run
	record    *migrate.Record
	snapshots *snapshots
}

func newMigration(r *migrate.Run) *migration {
	m := &migration{run: r, record: r.Record, snapshots: &snapshots{run: r}}
	m.driven, _ = r.Warm.(*drivenRun)
	return m
}
