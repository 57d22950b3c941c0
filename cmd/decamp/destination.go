package main

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/target/dir"
	"github.com/decamp/decamp/internal/transport/fanout"
)

// destination is one --to: a place with a run of its own.
type destination struct {
	name   string // the folder, as it was given
	target *dir.Target
	plan   plan.Plan
}

// ended is how the run to one destination ended.
type ended struct {
	to  *destination
	out migrate.Outcome
	err error
}

// plan makes the intents to move vm, one for each destination. A target's folder goes in
// by its absolute name, so that the run is found from any working directory.
func (w *works) plan(vm *inventory.VM, o migrateOptions) error {
	for _, d := range w.to {
		folder, err := filepath.Abs(d.name)
		if err != nil {
			return err
		}
		d.plan = plan.New(w.url, vm, "dir:"+folder, o.format, o.transport, time.Now())
		d.plan.Warm, d.plan.Hardware = o.warm.on, plan.Hardware(o.hardware)
	}
	return nil
}

// names tell the runs apart, if there are several.
func (w *works) names() runNames {
	if len(w.to) == 1 {
		return nil
	}
	names := runNames{}
	for _, d := range w.to {
		names[d.plan.ID] = strings.TrimRight(d.name, "/")
	}
	return names
}

// migrateAll does all runs at once. They share what is read of the source. What a fleet asks of
// runs is in bounds: Turn, Pace, Free and Epoch.
func (w *works) migrateAll(ctx context.Context, permit migrate.Permit, bounds migrate.Rig) []ended {
	ends := make([]ended, len(w.to))
	group := fanout.New(w.transport, len(w.to))
	var off sync.Mutex
	var runs sync.WaitGroup
	for i, d := range w.to {
		runs.Go(func() {
			member := group.Member(i)
			defer member.Close() // cannot fail
			rig := w.rig(d, member, &off)
			rig.Turn, rig.Pace, rig.Free, rig.Epoch, rig.Seen = bounds.Turn, bounds.Pace, bounds.Free, bounds.Epoch, bounds.Seen
			out, err := w.migrator.Migrate(ctx, d.plan, rig, permit)
			ends[i] = ended{d, out, err}
		})
	}
	runs.Wait()
	return ends
}

func (w *works) rig(d *destination, m *fanout.Member, off *sync.Mutex) migrate.Rig {
	return migrate.Rig{
		Source: w.source(off), Transport: m, Target: d.target,
		Open: w.open, Sum: w.sum, Settled: m.Settle, Boot: w.boot(d), Convert: convert.LinuxAppend,
	}
}

func (w *works) source(off *sync.Mutex) planned {
	return planned{w.session, w.shells.hands, off, w.leftovers, serverOf(w.url)}
}
