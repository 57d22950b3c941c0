package assemble

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/decamp/decamp/internal/trace"
	"github.com/decamp/decamp/internal/transport/fanout"
)

// Destination is one --to: a target with a separate run.
type Destination struct {
	Name   string               // name as the user wrote it; a folder without its dir:
	To     planfile.Destination // destination as in the plan
	At     planfile.Destination // destination after the expansion of a named place; otherwise equal to To
	Target LocalTarget          // the opened target
	Plan   journal.Plan         // intent of the run; set by Parts.Plan
}

// LocalTarget is a target that has images in a folder of this machine, either permanently or until their
// delivery.
type LocalTarget interface {
	targets.Target
	preflight.Target

	// Outline returns the definition of a VM at the target, without creating it.
	Outline(def targets.Definition) (targets.Outline, error)
}

// DestinationOf parses a value of --to. Relative folders start at the working directory. stage is the
// default staging folder; otherwise an empty text.
func DestinationOf(to, stage string) (planfile.Destination, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return planfile.ParseDestination(to, planfile.LocalDefaults{Folder: folder, Staging: stage})
}

// OpenTargets opens the targets of m with a role, and appends them to w.To. It logs in to no platform.
func (a *Assembler) OpenTargets(w *Parts, m Move, role planfile.Role) error {
	for _, to := range m.To {
		d := &Destination{Name: strings.TrimPrefix(string(to), "dir:")}
		var err error
		if d.To, err = planfile.ParseDestination(string(to), planfile.LocalDefaults{}); err != nil {
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

// openTarget opens the folder of a destination, and the platform to which VMs are delivered from there.
// plugins permits its kubeconfig to start a credential plugin. It fails if m requires a start and the
// target cannot start VMs.
func openTarget(to planfile.Destination, m Move, plugins bool) (LocalTarget, error) {
	here := m.Maps
	// a folder has no storages: those of the map belong to the platform in front of it
	if to.Kind() != planfile.Dir {
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
	var t LocalTarget = folder
	if place != nil {
		t = platform.New(folder, place, platform.Options{Keep: keep})
	}
	if m.Start {
		_, err = targets.StarterOf(t)
	}
	return t, err
}

// Ended is the result of the run to one destination.
type Ended struct {
	To  *Destination    // the destination
	Out migrate.Outcome // outcome; valid if Err is nil
	Err error           // error of the run
}

// Plan sets the intent to migrate vm in each destination. An intent that is equal to a recorded one
// continues that run.
func (w *Parts) Plan(vm *inventory.VM, m Move) {
	engine := EngineOf(m)
	for _, d := range w.To {
		d.Plan = journal.New(w.URL, vm, string(d.To), string(m.Format), string(m.Transport), time.Now())
		d.Plan.Warm, d.Plan.Hardware, d.Plan.Maps = m.Mode == planfile.WarmMode, journal.Hardware(m.Hardware), m.Maps.Of(vm)
		d.Plan.Engine, d.Plan.GuestAgent = engine.engineForPlan(m.Hardware), m.GuestAgent && m.ChangesGuest()
		d.Plan.Kernel = engine.kernelForPlan(m.Hardware)
	}
}

// MigrateAll executes the runs to all destinations in parallel, and returns when all have ended. The
// runs share reads of the source. bounds has the functions of a fleet: TransferSlot, Pace, Free and Epoch; the
// zero Environment has no limits.
func (w *Parts) MigrateAll(ctx context.Context, permit migrate.Permit, bounds migrate.Environment) []Ended {
	// each goroutine writes one element, so ends needs no lock
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
			rig.RequestSlot, rig.Pace, rig.Free, rig.Epoch, rig.Seen = bounds.RequestSlot, bounds.Pace, bounds.Free, bounds.Epoch, bounds.Seen
			w.traces.StartRun(d.Plan.ID, trace.Run{VM: d.Plan.VM.Name, Ref: string(d.Plan.VM.Ref), Source: ServerOf(w.URL)})
			defer w.traces.EndRun(d.Plan.ID)
			out, err := w.Migrator.Migrate(ctx, d.Plan, rig, permit)
			ends[i] = Ended{d, out, err}
		})
	}
	runs.Wait()
	return ends
}

// rigFor returns the rig of the run to d. off must be the same mutex for all destinations.
func (w *Parts) rigFor(d *Destination, m *fanout.Member, off *sync.Mutex) migrate.Environment {
	return migrate.Environment{
		Source: w.plannedSource(off), Transport: m, Target: d.Target,
		Open: w.openDisk, Reread: w.reopenDisk, Sum: w.hashDisk, NVRAM: w.readNVRAM, Settled: m.Settle, Boot: w.trialBoot(d), Rehearse: w.Rehearse, Trials: w.enterTrial, Convert: w.Conversion.Appended, Prepare: w.Conversion.prepareGuest,
	}
}

// RigOf returns a rig that suffices to undo a run to d. It has no transport.
func (w *Parts) RigOf(d *Destination) migrate.Environment {
	return migrate.Environment{Source: w.plannedSource(new(sync.Mutex)), Target: d.Target}
}

// plannedSource returns the session as migrate.Source. off serializes power changes of runs that share
// a VM.
func (w *Parts) plannedSource(off *sync.Mutex) plannedSession {
	return plannedSession{w.Session, w.Shells.changer, off, w.Leftovers, ServerOf(w.URL)}
}

// openPlace opens a platform without connecting to it; place is nil for a plain folder. keep reports
// whether images stay in the staging folder after the delivery.
func openPlace(to planfile.Destination, m Move, plugins bool) (place platform.Platform, keep bool, err error) {
	switch to.Kind() {
	case planfile.KubeVirt:
		o := kubevirt.Options{Maps: m.Maps}
		if plugins {
			o.Plugins = kube.AllowPlugins
		}
		return kubevirt.New(to.Address(), o)
	case planfile.Libvirt:
		return withoutKeep(libvirt.New(to.Address(), libvirt.Options{Staging: to.Folder(), Type: string(m.DomainType), Maps: m.Maps}))
	case planfile.Proxmox:
		return withoutKeep(proxmox.New(to.Address(), proxmox.Options{Maps: m.Maps}))
	case planfile.OpenStack:
		return withoutKeep(openstack.New(to.Address(), openstack.Options{Maps: m.Maps}))
	}
	return nil, false, nil
}

// ParametersOf returns the names of the parameters of a kind of destination, sorted, without the staging
// folder.
func ParametersOf(kind string) []string {
	list := map[string]func() []string{
		planfile.KubeVirt: kubevirt.Parameters, planfile.Libvirt: libvirt.Parameters,
		planfile.Proxmox: proxmox.Parameters, planfile.OpenStack: openstack.Parameters,
	}[kind]
	if list == nil {
		return nil
	}
	return list()
}

// ListValues returns the names at a destination that a parameter of it may have: see
// platform.ValueLister. It starts no credential plugin.
func ListValues(ctx context.Context, to planfile.Destination, parameter string) (names []string, err error) {
	place, _, err := openPlace(to, Move{}, false)
	if err != nil {
		return nil, err
	}
	if p, ok := place.(platform.ValueLister); ok {
		names, err = p.ListValues(ctx, parameter)
	}
	if c, ok := place.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return names, err
}

// checkLogin returns an error if a platform does not accept the login. Folders always succeed.
func checkLogin(ctx context.Context, place LocalTarget) error {
	p, ok := place.(placecheck.Examiner)
	if !ok {
		return nil
	}
	var errs []error
	for _, look := range p.Examine(ctx, platform.Login) {
		errs = append(errs, look.Err)
	}
	return errors.Join(errs...)
}

// withoutKeep returns the results of openPlace for a platform that stores the images itself. It returns
// a nil interface, not a nil pointer in one, if err is set.
func withoutKeep[P platform.Platform](place P, err error) (platform.Platform, bool, error) {
	if err != nil {
		return nil, false, err
	}
	return place, false, nil
}
