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

// Outlined is the definition of a VM at one destination, before its migration.
type Outlined struct {
	To      string           `json:"to"`                // destination as in the plan
	Outline *targets.Outline `json:"outline,omitempty"` // definition; nil if it cannot be defined there
	Failure *journal.Failure `json:"failure,omitempty"` // obstacle; nil if none
	err     error            // all obstacles with their kinds and hints; nil if none
}

// DryRun is the result of a dry run of one VM.
type DryRun struct {
	VM           string     `json:"vm"`           // name of the VM
	Ref          string     `json:"ref"`          // reference of the VM at the source
	Notes        []string   `json:"notes"`        // what is uncertain in the definitions; not nil
	Destinations []Outlined `json:"destinations"` // one element for each destination; not nil
}

// PreviewDefinition returns the definition of a VM as far as it is known before the copy, and a DryRun without
// destinations. It reads the disks of a VM that is off.
func (a *Assembler) PreviewDefinition(ctx context.Context, w *Parts, vm *inventory.VM, o planfile.Options) (targets.Definition, DryRun) {
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
		def.Warnings = migrate.MarkDisconnected(vm, def.VM)
	}
	def.EFI = new(guest.EFIState(def.Guest, efi.State{})) // the firmware's state is read when the VM is off
	return def, r
}

// addNote appends a formatted note.
func (r *DryRun) addNote(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// inspectGuest inspects the disks at the source. ESXi locks the disks of a running VM, so those are not
// read; a note reports that.
func inspectGuest(ctx context.Context, w *Parts, vm *inventory.VM, r *DryRun) []guest.Report {
	if vm.Power != inventory.PoweredOff {
		r.addNote("the VM is %s, so its disks were not examined: the definition uses the guest type configured in VMware (%s)", vm.Power, vm.GuestID)
		return nil
	}
	reports, err := w.InspectGuest(ctx, vm)
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

// isWindows reports whether Windows was found. The guest agent is installed in Linux only.
func isWindows(g guest.Report) bool { return g.Windows != nil }

// Outline returns the definition of the VM at a destination, or its obstacles. refused has obstacles
// that apply to all destinations; it may be nil.
func Outline(ctx context.Context, d *Destination, def targets.Definition, obstacles []inventory.Warning, refused error) Outlined {
	out, err := outlineAt(d.To, d.Target, def)
	if err == nil {
		_, err = d.Target.Plan(ctx, def.VM)
	}
	err = errors.Join(err, refused)
	for _, w := range obstacles {
		kind := fault.Unsupported
		if migrate.IsTemporary(w) {
			kind = fault.Conflict
		}
		err = errors.Join(err, fault.New(kind, "%s", w.Text).WithHint("%s", w.Remedy))
	}
	out.err, out.Failure = err, journal.FailureOf(err)
	return out
}

// outlineAt returns the definition of a VM at a destination without connecting to it.
func outlineAt(to planfile.Destination, at LocalTarget, def targets.Definition) (Outlined, error) {
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

// Err returns the obstacles of all destinations as one error; otherwise nil.
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

// Outlines are the definitions of a plan's VMs. A nil *Outlines means that none were requested.
type Outlines struct {
	VMs []*OutlinedVM // VMs in the order of the plan

	byRef  map[inventory.MoRef]*OutlinedVM // elements of VMs by reference
	source *SourceParts                    // source of the plan, to inspect guests
}

// OutlinedVM is a VM of the plan with its definitions at all of its destinations.
type OutlinedVM struct {
	DryRun
	Definition targets.Definition // definition that all destinations share
}

// Outlines makes rig collect the definitions of VMs while the plan is checked. They are complete when
// preflight.Check returns.
func (p *SourceParts) Outlines(f *planfile.File, rig *preflight.Dependencies) *Outlines {
	p.Reader = https.New(p.Session, https.Options{MaxConnections: f.Defaults.Connections, Log: p.Assembler.Log})
	o := &Outlines{byRef: map[inventory.MoRef]*OutlinedVM{}, source: p}
	rig.Settled = o.addOutline
	return o
}

// addOutline adds the definition of a VM at a destination. It has the type of preflight.Environment.Settled.
func (o *Outlines) addOutline(ctx context.Context, m planfile.Move, to planfile.Destination, p preflight.Target, refused error) {
	at, ok := p.(LocalTarget)
	if !ok {
		return
	}
	vm := o.byRef[m.VM.Ref]
	if vm == nil {
		vm = &OutlinedVM{}
		vm.Definition, vm.DryRun = o.source.Assembler.PreviewDefinition(ctx, o.source.Parts, m.VM, m.Options)
		o.VMs, o.byRef[m.VM.Ref] = append(o.VMs, vm), vm
	}
	out, err := outlineAt(to, at, vm.Definition)
	if err == nil {
		err = refused
	}
	out.err, out.Failure = err, journal.FailureOf(err)
	vm.Destinations = append(vm.Destinations, out)
}

// Reports returns the results of all VMs in the order of the plan; nil for nil Outlines.
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
