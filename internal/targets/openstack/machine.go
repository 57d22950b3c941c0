package openstack

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// machine is the definition of a VM, as far as it does not depend on the cloud.
type machine struct {
	name       string              // name of the server
	properties map[string]string   // properties of images and volumes, from which Nova derives the server's hardware
	bus        string              // bus of all disks: sata, ide, scsi or virtio
	boot       int                 // index of the boot disk; -1 if there are no disks
	warnings   []inventory.Warning // differences from the source VM
}

// bytes of a GiB
const gib = 1 << 30

// gibibytes returns the size in GiB of the volume for a disk, rounded up.
func gibibytes(bytes int64) int { return int((bytes + gib - 1) / gib) }

// machineOf returns the machine for def. It sends no request. Check and Deliver both use it, so that
// its errors appear
// before the copy.
func machineOf(def targets.Definition, o Options) (*machine, error) {
	b := &builder{vm: def.VM, def: def, machine: machine{name: nameOf(o.Maps.Name(def.VM.Name)), properties: map[string]string{}, boot: bootDisk(def.VM)}}
	if o.Boot == fromImage && len(def.VM.Disks) != 1 {
		return nil, fault.New(fault.Invalid, "VM %s has %d disks: boot=image requires exactly one", def.VM.Name, len(def.VM.Disks)).
			WithHint("remove boot=image: with volumes, any number of disks is possible")
	}
	for _, step := range []func() error{b.setDiskBus, b.setCardModel, b.setFirmware, b.setGuestProperties, b.warnLostTags} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("define VM %s: %w", def.VM.Name, err)
		}
	}
	b.warn("uuid", "licences that depend on it must be renewed; the old UUID is in the metadata as "+uuidKey,
		"Nova assigns a new UUID to the server, instead of %s", def.VM.UUID)
	return &b.machine, nil
}

// builder builds one machine.
type builder struct {
	vm  *inventory.VM      // def.VM
	def targets.Definition // not modified
	machine
}

// warn adds a warning. code is a stable identifier, remedy an instruction for the user.
func (b *builder) warn(code, remedy, format string, args ...any) {
	b.warnings = append(b.warnings, inventory.Warning{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// usesVirtio reports whether the VM gets virtio hardware.
func (b *builder) usesVirtio() bool { return b.def.Hardware.OnVirtio() }

// isEFI reports whether the VM has EFI firmware.
func (b *builder) isEFI() bool { return b.vm.Firmware == inventory.EFI }

// bootDisk returns the index of the first disk in the boot order, or else on the controllers; -1 if
// there are no disks.
func bootDisk(vm *inventory.VM) int {
	for _, device := range vm.BootOrder {
		for i, d := range vm.Disks {
			if device == fmt.Sprintf("disk:%d", d.Key) {
				return i
			}
		}
	}
	if len(vm.Disks) == 0 {
		return -1
	}
	return vm.DisksInGuestOrder()[0]
}

// setDiskBus chooses the bus of all disks, because a server in Nova has only one.
//
// With virtio hardware it is virtio-scsi or virtio-blk. A BIOS guest with at most three disks, all on
// IDE, keeps IDE.
// Others get SATA: every QEMU has it, and most guests have a driver for it. Distributions build QEMU
// without PVSCSI.
func (b *builder) setDiskBus() error {
	b.bus = "sata"
	switch b.def.Hardware {
	case targets.Virtio:
		b.bus, b.properties["hw_scsi_model"] = "scsi", "virtio-scsi" // Linux keeps its sdX names
	case targets.VirtioBlk:
		b.bus = "virtio"
	}
	used := map[inventory.Bus]bool{}
	for _, c := range b.vm.Controllers {
		if slices.ContainsFunc(b.vm.Disks, func(d inventory.Disk) bool { return d.Controller == c.Key }) {
			used[c.Bus] = true
		}
	}
	if !b.usesVirtio() && !b.isEFI() && len(used) == 1 && used[inventory.IDE] && len(b.vm.Disks) <= 3 {
		b.bus, b.properties["hw_machine_type"] = "ide", "pc"
	}
	for _, kind := range slices.Sorted(maps.Keys(used)) {
		if b.bus == "sata" && kind != inventory.AHCI {
			b.warn("bus", "before the migration, make sure that the guest loads the driver ahci (Windows: storahci) at boot; or convert it: --hardware virtio",
				"the disks of its %s controllers are on SATA", cmp.Or(string(kind), "unknown"))
		}
	}
	b.properties["hw_disk_bus"] = b.bus
	for i, d := range b.vm.Disks {
		if d.Capacity%gib != 0 {
			b.warn("disk-size", "no action is required; to move a GPT to the new end: sgdisk -e /dev/sdX",
				"disk %d has %d GiB instead of %d MiB: volume sizes are whole GiB", i, gibibytes(d.Capacity), d.Capacity>>20)
		}
	}
	return nil
}

// setCardModel chooses the model of all cards, because a server in Nova has only one: virtio, e1000 if
// the first card
// has that model, or e1000e. It adds a warning for each card whose model changes.
func (b *builder) setCardModel() error {
	if len(b.vm.NICs) == 0 {
		return nil
	}
	if b.usesVirtio() {
		b.properties["hw_vif_model"] = "virtio"
		return nil
	}
	model := "e1000e"
	if first := b.vm.NICs[0].Model; first == "e1000" {
		model = first
	}
	b.properties["hw_vif_model"] = model
	for _, card := range b.vm.NICs {
		if card.Model != model {
			b.warn("nic-model", "check the guest's network configuration after the first boot",
				"network card %s is an %s instead of %s: all cards of a server have one model, and not every QEMU has VMware's", card.MAC, model, cmp.Or(card.Model, "unknown"))
		}
	}
	return nil
}

// setFirmware sets firmware, secure boot and TPM. EFI variables are not carried over, and a TPM starts
// empty; both give
// a warning.
func (b *builder) setFirmware() error {
	p := b.properties
	if !b.isEFI() {
		p["hw_firmware_type"] = "bios"
		return nil
	}
	p["hw_firmware_type"], p["hw_machine_type"] = "uefi", "q35"
	b.warn("efi-variables", `make sure the guest has \EFI\BOOT\BOOTX64.EFI (grub-install --removable)`,
		"the boot entries in the EFI variables are not migrated: the guest boots from the fallback path")
	if b.vm.SecureBoot {
		p["os_secure_boot"] = "required"
	}
	if b.vm.VTPM {
		p["hw_tpm_version"], p["hw_tpm_model"] = "2.0", "tpm-crb"
		b.warn("vtpm", "keep the BitLocker or LUKS recovery key at hand for the first boot; the cloud needs Barbican for a TPM",
			"the virtual TPM starts empty: VMware does not export its content")
	}
	return nil
}

// setGuestProperties sets the CPU topology and the properties of the guest. The detected system takes
// precedence over
// the guest ID in vSphere.
func (b *builder) setGuestProperties() error {
	p := b.properties
	sockets, cores := b.vm.Topology()
	p["hw_cpu_sockets"], p["hw_cpu_cores"], p["hw_cpu_threads"] = fmt.Sprint(sockets), fmt.Sprint(cores), "1"
	windows := strings.HasPrefix(strings.ToLower(b.vm.GuestID), "win")
	for _, g := range b.def.Guest {
		if g.OS.ID != "" {
			windows = g.OS.ID == guest.WindowsID
			p["os_distro"] = toText(g.OS.ID)
		}
	}
	if b.def.GuestAgent() {
		p["hw_qemu_guest_agent"] = "yes"
	}
	p["os_type"] = "linux"
	if windows {
		p["os_type"] = "windows" // Nova then sets the clock to local time and enables Hyper-V's extensions
	}
	return nil
}
