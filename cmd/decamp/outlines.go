package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/units"
)

// writeDryRun prints the definition of vm at each destination, and the notes.
func writeDryRun(w io.Writer, r *assemble.DryRun, vm *inventory.VM) {
	for _, d := range r.Destinations {
		fmt.Fprintf(w, "%s to %s\n", fault.Printable(r.VM), fault.Printable(d.To))
		if d.Outline != nil {
			writeOutline(w, vm, d.Outline)
		}
		fmt.Fprintln(w)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "Note: %s\n", fault.Printable(note))
	}
}

// writeOutlines prints the definitions of a plan's VMs. Obstacles are among the findings.
func writeOutlines(w io.Writer, o *assemble.Outlines) {
	if o == nil {
		return
	}
	fmt.Fprintln(w)
	for _, vm := range o.VMs {
		writeDryRun(w, &vm.DryRun, vm.Definition.VM)
	}
}

// writeOutline prints one line for each property of the definition.
func writeOutline(w io.Writer, vm *inventory.VM, o *targets.Outline) {
	line := func(what, format string, args ...any) {
		fmt.Fprintf(w, "  %-8s  %s\n", what, fault.Printable(fault.OneLine(fmt.Sprintf(format, args...))))
	}
	line("at", "%s", o.Target)
	line("name", "%s", o.Name)
	line("uuid", "%s", o.UUID)
	line("machine", "%s, %s, %s of %s, %d MiB", o.Machine, firmwareOf(o), units.Count(o.Sockets, "socket"), units.Count(o.Cores, "core"), o.MemoryMiB)
	for _, d := range o.Disks {
		line("disk", "%s on %s, %s, serial %s, as %s%s", diskName(vm, d.Key), d.Bus, units.Binary(d.Size), cmp.Or(d.Serial, "none"), d.As, prefixed(" on ", d.On))
	}
	for _, c := range o.Cards {
		line("card", "%s %s, network %s (was %s)%s, %s", c.MAC, c.Model, c.Network, c.From, vlanText(c.VLAN), linkState(c.Down))
	}
	if o.GuestAgent {
		line("agent", "channel for QEMU's guest agent")
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

// firmwareOf returns the firmware with secure boot and TPM.
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

// bootsFrom returns the names of the boot devices in order.
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

// diskName returns the label of a disk, or its key.
func diskName(vm *inventory.VM, key int32) string {
	if d, ok := vm.Disk(key); ok && d.Label != "" {
		return d.Label
	}
	return fmt.Sprintf("disk %d", key)
}

// prefixed returns words and text; empty if text is.
func prefixed(words, text string) string {
	if text == "" {
		return ""
	}
	return words + text
}

// vlanText returns the VLAN with a space before it; empty for 0.
func vlanText(vlan int) string {
	if vlan == 0 {
		return ""
	}
	return fmt.Sprintf(" VLAN %d", vlan)
}

// linkState returns the state of a network card at power-on.
func linkState(down bool) string {
	if down {
		return "not connected"
	}
	return "connected"
}
