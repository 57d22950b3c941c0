package esx

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/inventory"
)

// findWarnings returns what prevents the migration of m, and what the user should know
// before. The codes are part of the JSON output, and never change their meaning.
func (m *machine) findWarnings() []inventory.Warning {
	w := m.stateWarnings()
	for i := range m.Disks {
		w = append(w, m.diskWarnings(&m.Disks[i])...)
	}
	w = append(w, m.controllerWarnings()...)
	return append(w, m.deviceWarnings()...)
}

// blockingWarning returns a warning that prevents a migration.
func blockingWarning(code, text, remedy string) inventory.Warning {
	return inventory.Warning{Code: code, Text: text, Remedy: remedy, Blocks: true}
}

// warningOnly returns a warning that does not prevent a migration.
func warningOnly(code, text, remedy string) inventory.Warning {
	return inventory.Warning{Code: code, Text: text, Remedy: remedy}
}

// codeInvalid is the code of the warning about invalid values from the source.
const codeInvalid = "invalid"

// invalidWarning returns the warning about values that RemoveInvalid removed from a VM.
func invalidWarning(vm string, problems []string) inventory.Warning {
	return blockingWarning(codeInvalid, fmt.Sprintf("the source reports invalid values of VM %q: %s", vm, strings.Join(problems, "; ")),
		"correct the values in vSphere, or remove the VM from the inventory and register it again; then check them: decamp ls --verbose")
}

// removeInvalid removes invalid values from a VM, and adds a warning if there were any.
func removeInvalid(vm *inventory.VM) {
	if problems := vm.RemoveInvalid(); len(problems) > 0 {
		vm.Warnings = append(vm.Warnings, invalidWarning(vm.Name, problems))
	}
}

// stateWarnings returns the warnings about power state, snapshots, encryption and
// names.
func (m *machine) stateWarnings() []inventory.Warning {
	var w []inventory.Warning
	add := func(when bool, warning inventory.Warning) {
		if when {
			w = append(w, warning)
		}
	}
	add(m.unreadable != "", blockingWarning("inaccessible", "the VM's configuration cannot be read: "+m.unreadable,
		"bring its datastore or host back, give the user the privilege to see it, or register the VM again"))
	if len(m.invalid) > 0 {
		w = append(w, invalidWarning(m.Name, m.invalid))
	}
	add(m.agent, blockingWarning("system-vm", "vSphere runs this VM for itself (vCLS)", "leave it where it is; vCenter makes and removes it"))
	add(m.Template, warningOnly("template", "it is a template", "nothing: it arrives as a powered-off VM"))
	add(m.Power == inventory.PoweredOn, blockingWarning("running", "the VM is powered on", "shut it down first: its disks are locked and changing"))
	add(m.Power == inventory.Suspended, blockingWarning("suspended", "the VM is suspended: part of its state is in memory, not on its disks",
		"resume it and shut the guest down"))
	add(m.Snapshots > 0, blockingWarning("snapshots", fmt.Sprintf("it has %d snapshots", m.Snapshots),
		"delete all snapshots (Snapshots > Delete All) when they are no longer needed"))
	add(m.ConsolidationNeeded, blockingWarning("consolidation", "disks are left over from a deleted snapshot", "consolidate the disks (Snapshots > Consolidate)"))
	add(m.Encrypted, blockingWarning("encrypted", "the VM or a disk of it is encrypted: its files are ciphertext",
		"decrypt it (VM Policies > Edit VM Storage Policies), or wait for a transport that reads through the host"))
	add(len(m.Disks) == 0 && m.unreadable == "", blockingWarning("no-disks", "it has no disks, so there is nothing to copy", "create a new VM at the target"))
	add(m.VTPM, warningOnly("vtpm", "it has a virtual TPM, whose contents cannot be taken along",
		"have the BitLocker recovery key or a LUKS passphrase at hand, or suspend BitLocker before the move"))
	add(m.SecureBoot, warningOnly("secure-boot", "secure boot is on; its keys (NVRAM) stay behind",
		"check that the target firmware has the keys the guest's boot loader was signed with"))
	add(m.sameName > 0, warningOnly("duplicate-name", fmt.Sprintf("%d more VMs have this name", m.sameName), "name it by its reference: "+string(m.Ref)))
	return w
}

// diskWarnings returns the warnings about one disk, which d must point to.
func (m *machine) diskWarnings(d *inventory.Disk) []inventory.Warning {
	var w []inventory.Warning
	name := fmt.Sprintf("disk %d (%s)", d.Key, d.Label)
	switch d.Backing {
	case inventory.RDM:
		w = append(w, m.rdmWarning(d, name))
	case inventory.VSAN:
		w = append(w, blockingWarning("vsan", name+" is on vSAN: an object without a data file", "let the host copy it (--transport landing), or move it to a VMFS or NFS datastore with Storage vMotion"))
	case inventory.VVol:
		w = append(w, blockingWarning("vvol", name+" is a vVol: an object without a data file", "move it to a VMFS or NFS datastore with Storage vMotion"))
	case inventory.UnknownBacking:
		w = append(w, blockingWarning("unknown-backing", name+" is kept in a way decamp does not know", "clone it to a VMFS or NFS datastore as an ordinary disk"))
	case inventory.Delta, inventory.SESparse:
		if m.Snapshots == 0 && !m.ConsolidationNeeded {
			w = append(w, blockingWarning("linked-clone", name+" is a layer on a disk that belongs to another VM", "clone the VM in full and move the clone"))
		}
	}
	if strings.HasPrefix(d.Mode, "independent") {
		w = append(w, warningOnly("independent", name+" is independent: snapshots leave it out", "nothing while the VM is powered off"))
	}
	if strings.HasSuffix(d.Mode, "nonpersistent") {
		w = append(w, warningOnly("nonpersistent", name+" forgets its changes at power-off", "nothing: the copy has the contents that the next power-on would see"))
	}
	if d.Shared {
		w = append(w, blockingWarning("shared-disk", name+" is shared with other VMs (multi-writer)", "power off all that use it, and set its sharing to none"))
	}
	return w
}

// rdmWarning returns the warning about a raw device mapping. The device must be a LUN
// of the host.
func (m *machine) rdmWarning(d *inventory.Disk, name string) inventory.Warning {
	for _, key := range m.physicalRDM {
		if key == d.Key {
			return blockingWarning("rdm-physical", name+" is a raw device in physical mode", "let the host copy it (--transport landing), or give the LUN to the target host")
		}
	}
	return blockingWarning("rdm", name+" is a raw device mapping: its data is on a LUN",
		"let the host copy it (--transport landing), or give the LUN to the target host")
}

// controllerWarnings returns the warnings about controllers that targets lack or that
// are shared. An unknown controller without disks does not prevent a migration.
func (m *machine) controllerWarnings() []inventory.Warning {
	var w []inventory.Warning
	for _, c := range m.Controllers {
		name := fmt.Sprintf("controller %d (%s%d)", c.Key, c.Bus, c.Number)
		switch {
		case c.Bus == "" && m.hasDiskOn(c.Key):
			w = append(w, blockingWarning("unknown-controller", fmt.Sprintf("controller %d is a %s, and disks hang on it", c.Key, c.Unexpected),
				"move the disks to a SCSI, NVMe or SATA controller"))
		case c.Bus == "":
			w = append(w, warningOnly("unknown-controller", fmt.Sprintf("controller %d is a %s", c.Key, c.Unexpected), "nothing: no disk uses it"))
		case c.Bus == inventory.BusLogic:
			w = append(w, warningOnly("buslogic", name+" is one that KVM does not emulate", "expect the disks on another controller; the guest needs its driver"))
		}
		if c.SharedBus {
			w = append(w, blockingWarning("shared-bus", name+" shares its bus with other VMs (a cluster)", "power off the cluster's nodes and set bus sharing to none"))
		}
	}
	return w
}

// hasDiskOn reports whether a disk is attached to the controller with that key.
func (m *machine) hasDiskOn(controller int32) bool {
	for _, d := range m.Disks {
		if d.Controller == controller {
			return true
		}
	}
	return false
}

// deviceWarnings returns the warnings about media, ports and devices that are not
// migrated.
func (m *machine) deviceWarnings() []inventory.Warning {
	var w []inventory.Warning
	for _, label := range m.media {
		w = append(w, warningOnly("cdrom", label+" is connected", "nothing: the drive arrives empty"))
	}
	for _, label := range m.ports {
		w = append(w, warningOnly("port", label+" is connected, and stays behind", "see what the guest uses it for; give the VM a like device on the target, or do without"))
	}
	for _, label := range m.passthrough {
		w = append(w, warningOnly("passthrough", label+" is a device of the host", "give the VM a like device on the target, or do without"))
	}
	return w
}
