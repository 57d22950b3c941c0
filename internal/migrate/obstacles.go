package migrate

import (
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
)

// Obstacles returns the reasons why vm cannot be migrated by t with the permissions of p. t may be nil
// if the transport is unknown.
func Obstacles(vm *inventory.VM, t transport.Transport, p Permit) []inventory.Warning {
	return slices.DeleteFunc(listBlockers(vm), func(w inventory.Warning) bool {
		switch {
		case transport.Supports(t, w.Code):
			return true
		case !p.PowerOff:
			return false
		}
		return w.Code == "running" || w.Code == "suspended" && p.Force && !p.Warm
	})
}

// IsTemporary reports whether an obstacle is a state that the operator can change, and not a property of
// the VM's configuration.
func IsTemporary(w inventory.Warning) bool { return passingCodes[w.Code] }

// WarnedOf reports whether vm has a warning with that code.
func WarnedOf(vm *inventory.VM, code string) bool {
	return slices.ContainsFunc(vm.Warnings, func(w inventory.Warning) bool { return w.Code == code })
}

// passingCodes are the codes of states that the operator can change.
var passingCodes = map[string]bool{"running": true, "suspended": true, "snapshots": true, "consolidation": true}

// listBlockers returns the blocking warnings of the inventory, and those of a second check of the most
// severe ones. Each code is reported once.
func listBlockers(vm *inventory.VM) []inventory.Warning {
	var all []inventory.Warning
	add := func(when bool, w inventory.Warning) {
		if when && !slices.ContainsFunc(all, func(have inventory.Warning) bool { return have.Code == w.Code }) {
			all = append(all, w)
		}
	}
	const runningRemedy = "shut the VM down, or add --power-off or --warm (in a plan: powerOff: guest or mode: warm)"
	for _, w := range vm.Warnings {
		if w.Code == "running" { // its own remedy does not name what decamp does
			w.Remedy = runningRemedy
		}
		if w.Blocks {
			all = append(all, w)
		}
	}
	add(vm.Power == inventory.PoweredOn, inventory.Warning{Code: "running", Text: "the VM is powered on", Remedy: runningRemedy})
	add(vm.Power == inventory.Suspended, inventory.Warning{Code: "suspended", Text: "the VM is suspended", Remedy: "resume the VM and shut it down"})
	add(vm.Snapshots > 0, inventory.Warning{Code: "snapshots", Text: fmt.Sprintf("the VM has snapshots (%d)", vm.Snapshots), Remedy: "delete all snapshots"})
	add(vm.ConsolidationNeeded, inventory.Warning{Code: "consolidation", Text: "its disks require consolidation", Remedy: "consolidate its disks"})
	add(vm.Encrypted, inventory.Warning{Code: "encrypted", Text: "it is encrypted", Remedy: "decrypt it"})
	for _, c := range vm.Controllers {
		add(c.SharedBus, inventory.Warning{Code: "shared-bus", Text: fmt.Sprintf("controller %d shares its bus", c.Key), Remedy: "set bus sharing to none"})
	}
	for i := range vm.Disks {
		w, blocks := diskBlocker(&vm.Disks[i])
		told := w.Code == string(inventory.RDM) && WarnedOf(vm, "rdm-physical") // a warning of the same disk with another code
		add(blocks && !told, w)
	}
	return all
}

// diskBlocker returns a warning unless the disk is flat and no other VM writes to it: only such disks
// can be copied as files.
func diskBlocker(d *inventory.Disk) (inventory.Warning, bool) {
	name := fmt.Sprintf("disk %d", d.Key)
	switch {
	case d.Shared:
		return inventory.Warning{Code: "shared-disk", Text: name + " is shared with other VMs", Remedy: "set its sharing to none"}, true
	case d.Encrypted:
		return inventory.Warning{Code: "encrypted", Text: name + " is encrypted", Remedy: "decrypt it"}, true
	case d.Backing == inventory.Delta || d.Backing == inventory.SESparse || d.Layers > 1:
		return inventory.Warning{Code: "snapshots", Text: name + " is a layer on another disk", Remedy: "delete all snapshots, or clone the VM in full"}, true
	case d.Backing != inventory.Flat:
		return inventory.Warning{Code: string(d.Backing), Text: fmt.Sprintf("%s has the type %s", name, d.Backing), Remedy: "move it to a VMFS or NFS datastore as a thin or thick disk"}, true
	}
	return inventory.Warning{}, false
}
