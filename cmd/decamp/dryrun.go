package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport/https"
)

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
	def, r := a.Foresee(ctx, p.Parts, vm, m.Options)
	obstacles := migrate.Obstacles(vm, p.Transport, preflight.PermitOf(m.Options))
	refused := m.CheckEngine(ctx, vm, func() []guest.Report { return def.Guest })
	for _, d := range p.To {
		r.Destinations = append(r.Destinations, assemble.Outline(ctx, d, def, obstacles, refused))
	}
	if err := a.tellDryRun(def.VM, r); err != nil {
		return err
	}
	return r.Err()
}

func (a *app) tellDryRun(vm *inventory.VM, r assemble.DryRun) error {
	if a.json {
		return a.print(r)
	}
	writeDryRun(a.out, &r, vm)
	_, err := fmt.Fprintln(a.out, "This was a dry run: nothing was made, copied or switched off.")
	return err
}

// writeDryRun prints what vm would be at each destination.
func writeDryRun(w io.Writer, r *assemble.DryRun, vm *inventory.VM) {
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

// writeOutlines prints what the VMs of a plan would be defined as; what stands in the way is among the findings.
func writeOutlines(w io.Writer, o *assemble.Outlines) {
	if o == nil {
		return
	}
	fmt.Fprintln(w)
	for _, vm := range o.VMs {
		writeDryRun(w, &vm.DryRun, vm.Definition.VM)
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
