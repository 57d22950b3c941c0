package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/staged"
	"github.com/decamp/decamp/internal/transport/fanout"
)

// destination is one --to: a place with a run of its own.
type destination struct {
	name   string // as it was given, a folder without its dir:
	to     planfile.Destination
	at     planfile.Destination // what to stands for, if it is a named place; to otherwise
	target resident
	plan   plan.Plan
}

// resident is a target that keeps images in a folder of this machine, for good or on their way.
type resident interface {
	targets.Target
	preflight.Place

	// Outline says what a VM would be defined as.
	Outline(def targets.Definition) (targets.Outline, error)
}

// destinationOf reads what --to says. Folders may be relative here.
func destinationOf(to, stage string) (planfile.Destination, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return planfile.ParseDestination(to, planfile.Here{Folder: folder, Stage: stage})
}

// openTargets opens what is to take the VMs of a plan with a role.
func (a *assembler) openTargets(w *works, m move, role planfile.Role) error {
	for _, to := range m.To {
		d := &destination{name: strings.TrimPrefix(string(to), "dir:")}
		var err error
		if d.to, err = planfile.ParseDestination(string(to), planfile.Here{}); err != nil {
			return err
		}
		if d.at, err = a.expand(d.to, role); err != nil {
			return err
		}
		if d.target, err = openTarget(d.at, m); err != nil {
			return err
		}
		w.to = append(w.to, d)
	}
	return nil
}

// openTarget opens a folder, and in front of it what takes VMs from there.
func openTarget(to planfile.Destination, m move) (resident, error) {
	here := m.maps
	if to.Kind() != planfile.Dir { // storages are those of who takes VMs from there
		here.Storages = nil
	}
	folder, err := dir.New(to.Folder(), dir.Options{
		Format: targets.Format(m.Format),
		Domain: dir.DomainOptions{Type: string(m.DomainType), Maps: here},
	})
	if err != nil {
		return nil, err
	}
	place, keep, err := openPlace(to, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", to, err)
	}
	var t resident = folder
	if place != nil {
		t = staged.New(folder, place, staged.Options{Keep: keep})
	}
	if m.Start {
		_, err = targets.StarterOf(t)
	}
	return t, err
}

// ended is how the run to one destination ended.
type ended struct {
	to  *destination
	out migrate.Outcome
	err error
}

// plan makes the intents to move vm, one for each destination.
func (w *works) plan(vm *inventory.VM, m move) {
	engine := engineOf(m)
	for _, d := range w.to {
		d.plan = plan.New(w.url, vm, string(d.to), string(m.Format), string(m.Transport), time.Now())
		d.plan.Warm, d.plan.Hardware, d.plan.Maps = m.Mode == planfile.Warmly, plan.Hardware(m.Hardware), m.maps.Of(vm)
		d.plan.Engine, d.plan.GuestAgent = engine.plan(m.Hardware), m.GuestAgent && m.changesGuest()
		d.plan.Kernel = engine.planKernel(m.Hardware)
	}
}

// migrateAll does all runs at once. They share what is read of the source. What a fleet asks of
// runs is in bounds: Turn, Pace, Free and Epoch.
func (w *works) migrateAll(ctx context.Context, permit migrate.Permit, bounds migrate.Rig) []ended {
	ends := make([]ended, len(w.to))
	group := fanout.New(w.transport, len(w.to))
	var off sync.Mutex
	var runs sync.WaitGroup
	v2v := w.v2v(ctx)
	for i, d := range w.to {
		runs.Go(func() {
			member := group.Member(i)
			defer member.Close() // cannot fail
			rig := w.rig(d, member, &off)
			rig.V2V, rig.Keys = v2v, w.conversion.keyFiles()
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
		Open: w.open, Reread: w.openAgain, Sum: w.sum, NVRAM: w.nvram, Settled: m.Settle, Boot: w.boot(d), Rehearse: w.rehearse, Trials: w.enterTrial, Convert: w.conversion.appended, Prepare: w.conversion.prepared,
	}
}

// rigOf is what a run to d is given up with.
func (w *works) rigOf(d *destination) migrate.Rig {
	return migrate.Rig{Source: w.source(new(sync.Mutex)), Target: d.target}
}

func (w *works) source(off *sync.Mutex) planned {
	return planned{w.session, w.shells.hands, off, w.leftovers, serverOf(w.url)}
}
