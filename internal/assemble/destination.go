package assemble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	placecheck "github.com/decamp/decamp/internal/doctor/platform"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/kubevirt"
	"github.com/decamp/decamp/internal/targets/kubevirt/kube"
	"github.com/decamp/decamp/internal/targets/libvirt"
	"github.com/decamp/decamp/internal/targets/openstack"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/internal/targets/proxmox"
	"github.com/decamp/decamp/internal/transport/fanout"
)

// Destination is one --to: a target with a separate run.
type Destination struct {
	Name   string // name as the user wrote it; a folder without its dir:
	To     planfile.Destination
	At     planfile.Destination // destination behind a named place; otherwise equal to to
	Target Resident
	Plan   journal.Plan
}

// Resident is a target that keeps images in a folder of this machine, for good or on their way.
type Resident interface {
	targets.Target
	preflight.Place

	// Outline returns the definition that a VM would get.
	Outline(def targets.Definition) (targets.Outline, error)
}

// DestinationOf parses a value of --to. Folders may be relative here.
func DestinationOf(to, stage string) (planfile.Destination, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return planfile.ParseDestination(to, planfile.Here{Folder: folder, Stage: stage})
}

// OpenTargets opens the targets of a plan with a role.
func (a *Assembler) OpenTargets(w *Parts, m Move, role planfile.Role) error {
	for _, to := range m.To {
		d := &Destination{Name: strings.TrimPrefix(string(to), "dir:")}
		var err error
		if d.To, err = planfile.ParseDestination(string(to), planfile.Here{}); err != nil {
			return err
		}
		if d.At, err = a.expandPlace(d.To, role); err != nil {
			return err
		}
		if d.Target, err = openTarget(d.At, m, d.To.MayStartPlugin(role)); err != nil {
			return err
		}
		w.To = append(w.To, d)
	}
	return nil
}

// openTarget opens a folder, and in front of it the platform that takes VMs from there. With plugins, its
// kubeconfig may start a credential plugin.
func openTarget(to planfile.Destination, m Move, plugins bool) (Resident, error) {
	here := m.Maps
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
	place, keep, err := openPlace(to, m, plugins)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", to, err)
	}
	var t Resident = folder
	if place != nil {
		t = platform.New(folder, place, platform.Options{Keep: keep})
	}
	if m.Start {
		_, err = targets.StarterOf(t)
	}
	return t, err
}

// Ended is how the run to one destination ended.
type Ended struct {
	To  *Destination
	Out migrate.Outcome
	Err error
}

// Plan makes the intents to move vm, one for each destination.
func (w *Parts) Plan(vm *inventory.VM, m Move) {
	engine := EngineOf(m)
	for _, d := range w.To {
		d.Plan = journal.New(w.URL, vm, string(d.To), string(m.Format), string(m.Transport), time.Now())
		d.Plan.Warm, d.Plan.Hardware, d.Plan.Maps = m.Mode == planfile.Warmly, journal.Hardware(m.Hardware), m.Maps.Of(vm)
		d.Plan.Engine, d.Plan.GuestAgent = engine.engineForPlan(m.Hardware), m.GuestAgent && m.ChangesGuest()
		d.Plan.Kernel = engine.kernelForPlan(m.Hardware)
	}
}

// MigrateAll executes all runs in parallel. They share reads of the source. bounds has the fleet's
// functions: Turn, Pace, Free and Epoch.
func (w *Parts) MigrateAll(ctx context.Context, permit migrate.Permit, bounds migrate.Rig) []Ended {
	ends := make([]Ended, len(w.To))
	group := fanout.New(w.Transport, len(w.To))
	var off sync.Mutex
	var runs sync.WaitGroup
	v2v := w.virtV2V(ctx)
	for i, d := range w.To {
		runs.Go(func() {
			member := group.Member(i)
			defer member.Close() // cannot fail
			rig := w.rigFor(d, member, &off)
			rig.V2V, rig.Keys = v2v, w.Conversion.keyFiles()
			rig.Turn, rig.Pace, rig.Free, rig.Epoch, rig.Seen = bounds.Turn, bounds.Pace, bounds.Free, bounds.Epoch, bounds.Seen
			out, err := w.Migrator.Migrate(ctx, d.Plan, rig, permit)
			ends[i] = Ended{d, out, err}
		})
	}
	runs.Wait()
	return ends
}

func (w *Parts) rigFor(d *Destination, m *fanout.Member, off *sync.Mutex) migrate.Rig {
	return migrate.Rig{
		Source: w.plannedSource(off), Transport: m, Target: d.Target,
		Open: w.openDisk, Reread: w.reopenDisk, Sum: w.hashDisk, NVRAM: w.readNVRAM, Settled: m.Settle, Boot: w.trialBoot(d), Rehearse: w.Rehearse, Trials: w.enterTrial, Convert: w.Conversion.Appended, Prepare: w.Conversion.prepareGuest,
	}
}

// RigOf is what a run to d is given up with.
func (w *Parts) RigOf(d *Destination) migrate.Rig {
	return migrate.Rig{Source: w.plannedSource(new(sync.Mutex)), Target: d.Target}
}

func (w *Parts) plannedSource(off *sync.Mutex) plannedSession {
	return plannedSession{w.Session, w.Shells.changer, off, w.Leftovers, ServerOf(w.URL)}
}

// openPlace opens a platform; nil for a folder. It also reports whether images stay in the staging
// folder.
func openPlace(to planfile.Destination, m Move, plugins bool) (place platform.Place, keep bool, err error) {
	switch to.Kind() {
	case planfile.KubeVirt:
		o := kubevirt.Options{Maps: m.Maps}
		if plugins {
			o.Plugins = kube.AllowPlugins
		}
		return kubevirt.New(to.Address(), o)
	case planfile.Libvirt:
		return withoutKeep(libvirt.New(to.Address(), libvirt.Options{Stage: to.Folder(), Type: string(m.DomainType), Maps: m.Maps}))
	case planfile.Proxmox:
		return withoutKeep(proxmox.New(to.Address(), proxmox.Options{Maps: m.Maps}))
	case planfile.OpenStack:
		return withoutKeep(openstack.New(to.Address(), openstack.Options{Maps: m.Maps}))
	}
	return nil, false, nil
}

// checkLogin is an error unless the place lets us in, if it is one that is logged in to.
func checkLogin(ctx context.Context, place Resident) error {
	p, ok := place.(placecheck.Examined)
	if !ok {
		return nil
	}
	var errs []error
	for _, look := range p.Examine(ctx, platform.Login) {
		errs = append(errs, look.Err)
	}
	return errors.Join(errs...)
}

// withoutKeep is a place that takes the images away. It is no Place that holds a nil pointer.
func withoutKeep[P platform.Place](place P, err error) (platform.Place, bool, error) {
	if err != nil {
		return nil, false, err
	}
	return place, false, nil
}
