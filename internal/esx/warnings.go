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
		"make its datastore and host accessible, give the user the privilege to read it, or register the VM again"))
	if len(m.invalid) > 0 {
		w = append(w, invalidWarning(m.Name, m.invalid))
	}
	add(m.agent, blockingWarning("system-vm", "the VM is a service of vSphere (vCLS)", "do not migrate it; vCenter creates and removes it"))
	add(m.Template, warningOnly("template", "the VM is a template", "no action is necessary: it is migrated as a powered-off VM"))
	add(m.Power == inventory.PoweredOn, blockingWarning("running", "the VM is powered on", "shut the VM down: its disks are locked and change"))
	add(m.Power == inventory.Suspended, blockingWarning("suspended", "the VM is suspended: part of its state is not on its disks",
		"resume the VM and shut it down"))
	add(m.Snapshots > 0, blockingWarning("snapshots", fmt.Sprintf("the VM has snapshots (%d)", m.Snapshots),
		"delete all snapshots (Snapshots > Delete All)"))
	add(m.ConsolidationNeeded, blockingWarning("consolidation", "the VM has disks of a deleted snapshot", "consolidate the disks (Snapshots > Consolidate)"))
	add(m.Encrypted, blockingWarning("encrypted", "the VM or a disk is encrypted: its files contain ciphertext",
		"decrypt the VM (VM Policies > Edit VM Storage Policies)"))
	add(len(m.Disks) == 0 && m.unreadable == "", blockingWarning("no-disks", "the VM has no disks", "create a new VM at the target"))
	add(m.VTPM, warningOnly("vtpm", "the VM has a virtual TPM, whose content cannot be migrated",
		"get the BitLocker recovery key or a LUKS passphrase, or suspend BitLocker before the migration"))
	add(m.SecureBoot, warningOnly("secure-boot", "secure boot is on; its keys (NVRAM) are not migrated",
		"check that the firmware of the target has the keys that signed the guest's boot loader"))
	add(m.sameName > 0, warningOnly("duplicate-name", fmt.Sprintf("other VMs have the same name (%d)", m.sameName), "select the VM by its reference: "+string(m.Ref)))
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
		w = append(w, blockingWarning("vsan", name+" is on vSAN: an object without a data file", "add --transport landing, with which the host copies it, or relocate it to a VMFS or NFS datastore with Storage vMotion"))
	case inventory.VVol:
		w = append(w, blockingWarning("vvol", name+" is a vVol: an object without a data file", "relocate it to a VMFS or NFS datastore with Storage vMotion"))
	case inventory.UnknownBacking:
		w = append(w, blockingWarning("unknown-backing", name+" has an unknown type of storage", "clone it to a VMFS or NFS datastore as a flat disk"))
	case inventory.Delta, inventory.SESparse:
		if m.Snapshots == 0 && !m.ConsolidationNeeded {
			w = append(w, blockingWarning("linked-clone", name+" is a linked clone of another VM's disk", "create a full clone of the VM and migrate the clone"))
		}
	}
	if strings.HasPrefix(d.Mode, "independent") {
		w = append(w, warningOnly("independent", name+" is independent: snapshots do not include it", "no action is necessary for a VM that is powered off"))
	}
	if strings.HasSuffix(d.Mode, "nonpersistent") {
		w = append(w, warningOnly("nonpersistent", name+" is nonpersistent: it loses its changes at power-off", "no action is necessary: the copy has the content of the next power-on"))
	}
	if d.Shared {
		w = append(w, blockingWarning("shared-disk", name+" is shared with other VMs (multi-writer)", "power off all VMs that use it, and set its sharing to none"))
	}
	return w
}

// rdmWarning returns the warning about a raw device mapping. The device must be a LUN
// of the host.
func (m *machine) rdmWarning(d *inventory.Disk, name string) inventory.Warning {
	for _, key := range m.physicalRDM {
		if key == d.Key {
			return blockingWarning("rdm-physical", name+" is a raw device in physical mode", "add --transport landing, with which the host copies it, or connect the LUN to the target's host")
		}
	}
	return blockingWarning("rdm", name+" is a raw device mapping: its data is on a LUN",
		"add --transport landing, with which the host copies it, or connect the LUN to the target's host")
}

// controllerWarnings returns the warnings about controllers that targets lack or that
// are shared. An unknown controller without disks does not prevent a migration.
func (m *machine) controllerWarnings() []inventory.Warning {
	var w []inventory.Warning
	for _, c := range m.Controllers {
		name := fmt.Sprintf("controller %d (%s%d)", c.Key, c.Bus, c.Number)
		switch {
		case c.Bus == "" && m.hasDiskOn(c.Key):
			w = append(w, blockingWarning("unknown-controller", fmt.Sprintf("controller %d is a %s, and disks use it", c.Key, c.Unexpected),
				"move the disks to a SCSI, NVMe or SATA controller"))
		case c.Bus == "":
			w = append(w, warningOnly("unknown-controller", fmt.Sprintf("controller %d is a %s", c.Key, c.Unexpected), "no action is necessary: no disk uses it"))
		case c.Bus == inventory.BusLogic:
			w = append(w, warningOnly("buslogic", name+" is of a type that KVM does not emulate", "check that the guest has a driver for the controller that replaces it"))
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
		w = append(w, warningOnly("cdrom", label+" is connected", "no action is necessary: the drive is migrated without a medium"))
	}
	for _, label := range m.ports {
		w = append(w, warningOnly("port", label+" is connected, and is not migrated", "check whether the guest uses it; if so, add an equivalent device at the target"))
	}
	for _, label := range m.passthrough {
		w = append(w, warningOnly("passthrough", label+" is a device of the host, and is not migrated", "check whether the guest uses it; if so, add an equivalent device at the target"))
	}
	return w
}
