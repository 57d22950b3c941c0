package assemble

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport/https"
)

// Outlined is what a VM would become at one destination.
type Outlined struct {
	To      string           `json:"to"`
	Outline *targets.Outline `json:"outline,omitempty"` // definition; nil if it cannot be defined there
	Failure *journal.Failure `json:"failure,omitempty"` // obstacle; nil if none
	err     error
}

// DryRun is what a dry run of one VM found.
type DryRun struct {
	VM           string     `json:"vm"`
	Ref          string     `json:"ref"`
	Notes        []string   `json:"notes"`
	Destinations []Outlined `json:"destinations"`
}

// Foresee returns what a VM would be defined by, as far as that is known before it is copied, and a report
// without destinations.
func (a *Assembler) Foresee(ctx context.Context, w *Parts, vm *inventory.VM, o planfile.Options) (targets.Definition, DryRun) {
	r := DryRun{VM: vm.Name, Ref: string(vm.Ref), Notes: []string{}, Destinations: []Outlined{}}
	def := targets.Definition{VM: vm, Decamp: a.Version, Guest: inspectGuest(ctx, w, vm, &r)}
	if o.Hardware == "virtio" {
		def.Hardware = targets.Virtio
		if o.GuestAgent && !slices.ContainsFunc(def.Guest, isWindows) {
			def.Converted = &convert.Result{GuestAgent: true} // the expected result
		}
	}
	if o.Hardware == "auto" {
		r.addNote("hardware auto: the definition shows compat; it becomes virtio if the guest can be changed, which is known after the copy")
	}
	if vm.Power == inventory.PoweredOn { // the state after a shutdown
		def.VM = new(*vm)
		def.Warnings = migrate.Pulled(vm, def.VM)
	}
	def.EFI = new(guest.EFIState(def.Guest, efi.State{})) // the firmware's state is read when the VM is off
	return def, r
}

func (r *DryRun) addNote(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// inspectGuest looks into the disks where they are. Of a VM that runs they are locked.
func inspectGuest(ctx context.Context, w *Parts, vm *inventory.VM, r *DryRun) []guest.Report {
	if vm.Power != inventory.PoweredOff {
		r.addNote("the VM is %s, so its disks were not examined: the definition uses the guest type configured in VMware (%s)", vm.Power, vm.GuestID)
		return nil
	}
	reports, err := w.Look(ctx, vm)
	if err != nil {
		r.addNote("its disks could not be examined, so the definition uses the guest type configured in VMware (%s): %v", vm.GuestID, err)
		return nil
	}
	for _, g := range reports {
		if g.Verdict != "" {
			r.addNote("guest: %s", g.Verdict)
		}
	}
	return reports
}

// isWindows reports whether Windows was found. It is left alone where Linux gets the guest agent.
func isWindows(g guest.Report) bool { return g.Windows != nil }

// Outline returns a destination's definition of the VM, or its obstacles. refused has obstacles that
// apply to all destinations.
func Outline(ctx context.Context, d *Destination, def targets.Definition, obstacles []inventory.Warning, refused error) Outlined {
	out, err := outlineAt(d.To, d.Target, def)
	if err == nil {
		_, err = d.Target.Plan(ctx, def.VM)
	}
	err = errors.Join(err, refused)
	for _, w := range obstacles {
		kind := fault.Unsupported
		if migrate.Passing(w) {
			kind = fault.Conflict
		}
		err = errors.Join(err, fault.New(kind, "%s", w.Text).WithHint("%s", w.Remedy))
	}
	out.err, out.Failure = err, journal.FailureOf(err)
	return out
}

// outlineAt returns a destination's definition of a VM without any connection.
func outlineAt(to planfile.Destination, at Resident, def targets.Definition) (Outlined, error) {
	out := Outlined{To: string(to)}
	o, err := at.Outline(def)
	if err != nil {
		return out, err
	}
	o.Warnings = slices.Concat(def.Warnings, o.Warnings)
	o.Drop(def.VM)
	out.Outline = &o
	return out, nil
}

// Err returns an error if any destination has an obstacle.
func (r *DryRun) Err() error {
	var errs []error
	for _, d := range r.Destinations {
		if d.err != nil {
			errs = append(errs, fmt.Errorf("to %s: %w", d.To, d.err))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("migrate %s: %w", r.VM, errors.Join(errs...))
}

// Outlines are the definitions of a plan's VMs; nil if they were not requested.
type Outlines struct {
	VMs []*OutlinedVM // VMs in the order of the plan

	byRef  map[inventory.MoRef]*OutlinedVM
	source *SourceParts
}

// OutlinedVM is a VM of the plan, on its way to all of its destinations.
type OutlinedVM struct {
	DryRun
	Definition targets.Definition
}

// Outlines collects what rig's places make of VMs, while a plan is checked.
func (p *SourceParts) Outlines(f *planfile.File, rig *preflight.Rig) *Outlines {
	p.Reader = https.New(p.Session, https.Options{MaxConnections: f.Defaults.Connections, Log: p.Assembler.Log})
	o := &Outlines{byRef: map[inventory.MoRef]*OutlinedVM{}, source: p}
	rig.Settled = o.addOutline
	return o
}

// addOutline adds what a place reported of a VM.
func (o *Outlines) addOutline(ctx context.Context, m planfile.Move, to planfile.Destination, p preflight.Place, refused error) {
	at, ok := p.(Resident)
	if !ok {
		return
	}
	vm := o.byRef[m.VM.Ref]
	if vm == nil {
		vm = &OutlinedVM{}
		vm.Definition, vm.DryRun = o.source.Assembler.Foresee(ctx, o.source.Parts, m.VM, m.Options)
		o.VMs, o.byRef[m.VM.Ref] = append(o.VMs, vm), vm
	}
	out, err := outlineAt(to, at, vm.Definition)
	if err == nil {
		err = refused
	}
	out.err, out.Failure = err, journal.FailureOf(err)
	vm.Destinations = append(vm.Destinations, out)
}

// Reports returns those of all VMs, in the order of the plan.
func (o *Outlines) Reports() []DryRun {
	if o == nil {
		return nil
	}
	all := []DryRun{}
	for _, vm := range o.VMs {
		all = append(all, vm.DryRun)
	}
	return all
}
