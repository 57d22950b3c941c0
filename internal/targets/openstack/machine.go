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

// A machine is what a VM becomes, as far as the cloud need not be asked for it.
type machine struct {
	name       string
	properties map[string]string // of images, and by them of volumes: what Nova makes the server's hardware by
	bus        string            // of all disks: sata, ide or scsi
	boot       int               // index of the disk that it boots from; -1 if it has none
	warnings   []inventory.Warning
}

const gib = 1 << 30

// gibibytes is the size of the volume that a disk of so many bytes takes.
func gibibytes(bytes int64) int { return int((bytes + gib - 1) / gib) }

// machineOf says what def becomes, with a warning for each thing that is not as it was on VMware.
func machineOf(def targets.Definition, o Options) (*machine, error) {
	b := &builder{vm: def.VM, def: def, machine: machine{name: nameOf(o.Maps.Name(def.VM.Name)), properties: map[string]string{}, boot: bootDisk(def.VM)}}
	if o.Boot == fromImage && len(def.VM.Disks) != 1 {
		return nil, fault.New(fault.Invalid, "VM %s has %d disks: with boot=image it has one", def.VM.Name, len(def.VM.Disks)).
			WithHint("leave boot=image out: volumes take any number of disks")
	}
	for _, step := range []func() error{b.disks, b.cards, b.firmware, b.system, b.tags} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("define VM %s: %w", def.VM.Name, err)
		}
	}
	b.warn("uuid", "licences that hang on it have to be renewed; the old one is in the metadata as "+uuidKey,
		"the server gets a UUID of Nova's, and not %s", def.VM.UUID)
	return &b.machine, nil
}

// A builder collects one machine.
type builder struct {
	vm  *inventory.VM
	def targets.Definition
	machine
}

func (b *builder) warn(code, remedy, format string, args ...any) {
	b.warnings = append(b.warnings, inventory.Warning{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (b *builder) virtio() bool { return b.def.Hardware.OnVirtio() }

func (b *builder) efi() bool { return b.vm.Firmware == inventory.EFI }

// bootDisk is the disk that the VM boots from: the first of its boot order, or else of its controllers.
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
	return vm.Seated()[0]
}

// disks puts all disks on one bus, as Nova has one for each server. SATA is what every QEMU has, and what
// most guests have a driver for: those that distributions patch have no PVSCSI.
func (b *builder) disks() error {
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
	if !b.virtio() && !b.efi() && len(used) == 1 && used[inventory.IDE] && len(b.vm.Disks) <= 3 {
		b.bus, b.properties["hw_machine_type"] = "ide", "pc"
	}
	for _, kind := range slices.Sorted(maps.Keys(used)) {
		if b.bus == "sata" && kind != inventory.AHCI {
			b.warn("bus", "make sure the guest starts with the driver ahci (Windows: storahci) before you migrate it, or convert it: --hardware virtio",
				"the disks of its %s controllers are on SATA", cmp.Or(string(kind), "unknown"))
		}
	}
	b.properties["hw_disk_bus"] = b.bus
	for i, d := range b.vm.Disks {
		if d.Capacity%gib != 0 {
			b.warn("disk-size", "nothing has to be done; a GPT is moved to the new end by: sgdisk -e /dev/sdX",
				"disk %d has %d GiB, and not %d MiB: volumes are whole GiB", i, gibibytes(d.Capacity), d.Capacity>>20)
		}
	}
	return nil
}

// cards chooses the model: Nova has one for all cards of a server.
func (b *builder) cards() error {
	if len(b.vm.NICs) == 0 {
		return nil
	}
	if b.virtio() {
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
				"network card %s is an %s, and was %s: a server has one model, and not every QEMU has VMware's", card.MAC, model, cmp.Or(card.Model, "unknown"))
		}
	}
	return nil
}

func (b *builder) firmware() error {
	p := b.properties
	if !b.efi() {
		p["hw_firmware_type"] = "bios"
		return nil
	}
	p["hw_firmware_type"], p["hw_machine_type"] = "uefi", "q35"
	b.warn("efi-variables", `make sure the guest has \EFI\BOOT\BOOTX64.EFI (grub-install --removable)`,
		"the boot entries in the EFI variables stay behind: the guest boots from the fallback path")
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

// system says what was found in the guest.
func (b *builder) system() error {
	p := b.properties
	sockets, cores := b.vm.Topology()
	p["hw_cpu_sockets"], p["hw_cpu_cores"], p["hw_cpu_threads"] = fmt.Sprint(sockets), fmt.Sprint(cores), "1"
	windows := strings.HasPrefix(strings.ToLower(b.vm.GuestID), "win")
	for _, g := range b.def.Guest {
		if g.OS.ID != "" {
			windows = g.OS.ID == guest.WindowsID
			p["os_distro"] = text(g.OS.ID)
		}
	}
	if b.def.GuestAgent() {
		p["hw_qemu_guest_agent"] = "yes"
	}
	p["os_type"] = "linux"
	if windows {
		p["os_type"] = "windows" // Nova has its clock and Hyper-V's extensions by it
	}
	return nil
}
