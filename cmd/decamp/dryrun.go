package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport/https"
)

// outlined is what a VM would become at one destination.
type outlined struct {
	To      string           `json:"to"`
	Outline *targets.Outline `json:"outline,omitempty"` // nil: it cannot be defined there
	Failure *plan.Failure    `json:"failure,omitempty"` // what stands in the way
	err     error
}

// dryRunReport is what a dry run tells.
type dryRunReport struct {
	VM           string     `json:"vm"`
	Ref          string     `json:"ref"`
	Notes        []string   `json:"notes"`
	Destinations []outlined `json:"destinations"`
}

// dryRun says what would be defined, and what stands in the way. It reads the source, asks the
// destinations, and makes nothing anywhere.
func (a *app) dryRun(ctx context.Context, m assemble.Move, rawURL, name string) (err error) {
	if err := assemble.EngineOf(m).CheckFiles("--key-file", "--appliance-kernel"); err != nil {
		return err
	}
	p := &assemble.SourceParts{Assembler: &a.Assembler, Parts: &assemble.Parts{}, Login: m.Login, SSH: m.SSH}
	if err := a.OpenTargets(p.Parts, m, planfile.Local); err != nil {
		return err
	}
	defer closing(&err, p.Close)
	if err := a.OpenURL(ctx, p, rawURL); err != nil {
		return err
	}
	p.Reader = https.New(p.Session, https.Options{MaxConnections: m.Connections, Log: a.Log})
	if p.Transport, err = a.NewTransport(ctx, p.Parts, m.Options); err != nil {
		return err
	}
	vm, err := p.Session.VM(ctx, name)
	if err != nil {
		return err
	}
	def, r := a.defined(ctx, p.Parts, vm, m.Options)
	obstacles := migrate.Obstacles(vm, p.Transport, preflight.PermitOf(m.Options))
	refused := m.CheckEngine(ctx, vm, func() []guest.Report { return def.Guest })
	for _, d := range p.To {
		r.Destinations = append(r.Destinations, outline(ctx, d, def, obstacles, refused))
	}
	if err := a.writeDryRun(def.VM, r); err != nil {
		return err
	}
	return r.err()
}

// defined is what a VM would be defined by, as far as that is known before it is copied, and a report
// without destinations.
func (a *app) defined(ctx context.Context, w *assemble.Parts, vm *inventory.VM, o planfile.Options) (targets.Definition, dryRunReport) {
	r := dryRunReport{VM: vm.Name, Ref: string(vm.Ref), Notes: []string{}, Destinations: []outlined{}}
	def := targets.Definition{VM: vm, Decamp: version, Guest: foreseeGuest(ctx, w, vm, &r)}
	if o.Hardware == "virtio" {
		def.Hardware = targets.Virtio
		if o.GuestAgent && !slices.ContainsFunc(def.Guest, isWindows) {
			def.Converted = &convert.Result{GuestAgent: true} // as far as it is foreseen
		}
	}
	if o.Hardware == "auto" {
		r.note("hardware auto: what is shown is compat; it is virtio if the guest can be changed, which is known once it is copied")
	}
	if vm.Power == inventory.PoweredOn { // as it is found by who shuts it down
		def.VM = new(*vm)
		def.Warnings = migrate.Pulled(vm, def.VM)
	}
	def.EFI = new(guest.EFIState(def.Guest, efi.State{})) // what the firmware holds is asked when the VM is off
	return def, r
}

func (r *dryRunReport) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// foreseeGuest looks into the disks where they are. Of a VM that runs they are locked.
func foreseeGuest(ctx context.Context, w *assemble.Parts, vm *inventory.VM, r *dryRunReport) []guest.Report {
	if vm.Power != inventory.PoweredOff {
		r.note("the VM is %s, so its disks were not looked into: what depends on the guest is by what VMware was told of it (%s)", vm.Power, vm.GuestID)
		return nil
	}
	reports, err := w.Look(ctx, vm)
	if err != nil {
		r.note("its disks could not be looked into, so what depends on the guest is by what VMware was told of it (%s): %v", vm.GuestID, err)
		return nil
	}
	for _, g := range reports {
		if g.Verdict != "" {
			r.note("guest: %s", g.Verdict)
		}
	}
	return reports
}

// isWindows reports whether Windows was found. It is left alone where Linux gets the guest agent.
func isWindows(g guest.Report) bool { return g.Windows != nil }

// outline asks a destination what it makes of the VM, and whether it could. refused is what stands in the
// way wherever it goes, as obstacles are.
func outline(ctx context.Context, d *assemble.Destination, def targets.Definition, obstacles []inventory.Warning, refused error) outlined {
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
	out.err, out.Failure = err, plan.FailureOf(err)
	return out
}

// outlineAt is what a destination would make of a VM. It asks nobody.
func outlineAt(to planfile.Destination, at assemble.Resident, def targets.Definition) (outlined, error) {
	out := outlined{To: string(to)}
	o, err := at.Outline(def)
	if err != nil {
		return out, err
	}
	o.Warnings = slices.Concat(def.Warnings, o.Warnings)
	o.Drop(def.VM)
	out.Outline = &o
	return out, nil
}

// err is what stands in the way of any destination.
func (r *dryRunReport) err() error {
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

func (a *app) writeDryRun(vm *inventory.VM, r dryRunReport) error {
	if a.json {
		return a.print(r)
	}
	r.write(a.out, vm)
	_, err := fmt.Fprintln(a.out, "This was a dry run: nothing was made, copied or switched off.")
	return err
}

// write prints what vm would be at each destination.
func (r *dryRunReport) write(w io.Writer, vm *inventory.VM) {
	for _, d := range r.Destinations {
		fmt.Fprintf(w, "%s to %s\n", plain(r.VM), plain(d.To))
		if d.Outline != nil {
			writeOutline(w, vm, d.Outline)
		}
		fmt.Fprintln(w)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "Note: %s\n", plain(note))
	}
}

// writeOutline prints one line for each thing, in the order in which people ask for them.
func writeOutline(w io.Writer, vm *inventory.VM, o *targets.Outline) {
	line := func(what, format string, args ...any) {
		fmt.Fprintf(w, "  %-8s  %s\n", what, plain(fault.OneLine(fmt.Sprintf(format, args...))))
	}
	line("at", "%s", o.Place)
	line("name", "%s", o.Name)
	line("uuid", "%s", o.UUID)
	line("machine", "%s, %s, %s of %s, %d MiB", o.Machine, firmwareOf(o), count(o.Sockets, "socket"), count(o.Cores, "core"), o.MemoryMiB)
	for _, d := range o.Disks {
		line("disk", "%s on %s, %s, serial %s, as %s%s", diskName(vm, d.Key), d.Bus, size(d.Size), cmp.Or(d.Serial, "none"), d.As, before(" on ", d.On))
	}
	for _, c := range o.Cards {
		line("card", "%s %s, network %s (was %s)%s, %s", c.MAC, c.Model, c.Network, c.From, tagged(c.VLAN), link(c.Down))
	}
	if o.GuestAgent {
		line("agent", "a channel for QEMU's guest agent")
	}
	if o.CDROMs > 0 {
		line("cdrom", "%d, empty", o.CDROMs)
	}
	line("boot", "%s", bootsFrom(vm, o))
	if len(o.Tags) > 0 {
		line("tags", "%s", strings.Join(o.Tags, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Attributes)) {
		line("attr", "%s: %s", name, o.Attributes[name])
	}
	if o.Notes != "" {
		line("notes", "%s", o.Notes)
	}
	for _, what := range o.Dropped {
		line("dropped", "%s", what)
	}
	for _, warning := range o.Warnings {
		line("changed", "%s: %s", warning.Code, warning.Text)
		line("", "  %s", warning.Remedy)
	}
}

func firmwareOf(o *targets.Outline) string {
	text := o.Firmware
	if o.SecureBoot {
		text += " with secure boot"
	}
	if o.TPM {
		text += ", a new TPM"
	}
	return text
}

// bootsFrom names the devices that the VM boots from, in order.
func bootsFrom(vm *inventory.VM, o *targets.Outline) string {
	var names []string
	for _, device := range o.Boot {
		for _, d := range o.Disks {
			if device == fmt.Sprintf("disk:%d", d.Key) {
				device = diskName(vm, d.Key)
			}
		}
		for _, c := range o.Cards {
			if device == fmt.Sprintf("net:%d", c.Key) {
				device = c.MAC
			}
		}
		names = append(names, device)
	}
	return strings.Join(names, ", ")
}

// diskName is what people call a disk of the VM.
func diskName(vm *inventory.VM, key int32) string {
	if d, ok := vm.Disk(key); ok && d.Label != "" {
		return d.Label
	}
	return fmt.Sprintf("disk %d", key)
}

// before puts words in front of a text that is there.
func before(words, text string) string {
	if text == "" {
		return ""
	}
	return words + text
}

func tagged(vlan int) string {
	if vlan == 0 {
		return ""
	}
	return fmt.Sprintf(" VLAN %d", vlan)
}

func link(down bool) string {
	if down {
		return "not connected"
	}
	return "connected"
}
