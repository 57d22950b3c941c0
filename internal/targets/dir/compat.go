package dir

import (
	"fmt"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// chooseBus returns the bus that replaces a VMware controller. In the compat profile it is the same
// hardware if
// QEMU has it and the firmware can boot from it. In the virtio profile, each controller becomes a
// virtio-scsi controller, which every firmware can boot from.
func (b *domainBuilder) chooseBus(c inventory.Controller) bus {
	switch b.def.Hardware {
	case targets.Virtio:
		return virtio
	case targets.VirtioBlk:
		return virtioBlk
	}
	on := map[inventory.Bus]bus{
		inventory.PVSCSI: pvscsi, inventory.LSILogic: lsilogic, inventory.LSISAS: lsisas,
		inventory.AHCI: sata, inventory.IDE: ide,
	}[c.Bus]
	switch {
	case c.Bus == inventory.NVMe:
		on = b.fallbackBus(c, "nvme", "libvirt has no NVMe disks before version 11.5")
	case b.isEFI() && c.Bus == inventory.IDE:
		on = sata
		b.warn("ide", "if the guest does not find its disk, boot it from rescue media and add the ahci driver",
			"the disks of ide%d are on SATA: EFI machines have no IDE", c.Number)
	case b.isEFI() && on.kind == "scsi" && b.holdsBootDisk(c):
		on = b.fallbackBus(c, "efi-boot", "the OVMF of distributions cannot boot from "+on.model)
	case c.Bus == inventory.LSILogic:
		b.warn("lsilogic", "if the guest does not find its disk, change the controller to LSI Logic SAS in vSphere first",
			"scsi%d is an LSI 53C1030 on VMware and an LSI 53C895A in QEMU: the guest needs its driver (sym53c8xx)", c.Number)
	}
	return on
}

// fallbackBus returns the bus for disks that cannot keep their controller, and adds a warning. OVMF can
// boot
// from the bus, and the guest probably has its driver. OVMF 2022.11 boots from virtio-scsi, SATA and
// NVMe,
// and from no other SCSI controller (measured). Linux uses sdX names on both buses.
func (b *domainBuilder) fallbackBus(c inventory.Controller, code, why string) bus {
	on, driver := sata, "ahci (Windows: storahci)"
	if b.isLinux() {
		on, driver = virtio, "virtio_scsi"
	}
	name := on.model
	if name == "" {
		name = on.kind
	}
	b.warn(code, "before the migration, make sure that the guest loads the driver "+driver+" at boot",
		"the disks of %s%d are on %s: %s", c.Bus, c.Number, name, why)
	return on
}

// holdsBootDisk reports whether the first disk in the boot order is on controller c.
func (b *domainBuilder) holdsBootDisk(c inventory.Controller) bool {
	order := b.bootOrder()
	var first inventory.Disk
	for _, d := range b.vm.Disks {
		at := order[fmt.Sprintf("disk:%d", d.Key)]
		if first.Key == 0 || at < order[fmt.Sprintf("disk:%d", first.Key)] {
			first = d
		}
	}
	return first.Controller == c.Key
}

// addCards adds all network cards. MACs are unchanged, and so are models unless the profile is virtio.
//
// A VLAN tag gives a warning: libvirt supports tags on bridges of Open vSwitch, and on Linux bridges
// since version
// 11.0, and does not start the VM otherwise.
func (b *domainBuilder) addCards() error {
	order := b.bootOrder()
	for _, n := range b.vm.NICs {
		x := libvirtxml.DomainInterface{
			Source: b.opts.cardSource(n),
			Model:  &libvirtxml.DomainInterfaceModel{Type: b.cardModel(n)},
			Boot:   bootEntry(order, fmt.Sprintf("net:%d", n.Key)),
		}
		if n.MAC != "" { // else libvirt chooses one
			x.MAC = &libvirtxml.DomainInterfaceMAC{Address: n.MAC}
		}
		if tag := b.opts.Maps.Network(n.Network).VLAN; tag != 0 {
			x.VLan = &libvirtxml.DomainInterfaceVLan{Tags: []libvirtxml.DomainInterfaceVLanTag{{ID: uint(tag)}}}
			b.warn("vlan", "check the type of the bridge, or map the network to a bridge in the VLAN: ip -d link show type bridge",
				"network card %s is in VLAN %d: libvirt supports VLANs on bridges of Open vSwitch, and since 11.0 on bridges of Linux; on other bridges the VM does not start", n.MAC, tag)
		}
		if n.LinkDown() {
			x.Link = &libvirtxml.DomainInterfaceLink{State: "down"}
		}
		b.domain.Devices.Interfaces = append(b.domain.Devices.Interfaces, x)
	}
	return nil
}

// cardModel returns the card's model at the target: the mapped one, virtio, or the source's model if
// QEMU has it.
// If QEMU lacks the model, it returns e1000 and adds a warning.
func (b *domainBuilder) cardModel(n inventory.NIC) string {
	if model := b.opts.Maps.Network(n.Network).Model; model != "" {
		return model
	}
	if b.usesVirtio() {
		return "virtio"
	}
	same := map[string]string{"vmxnet3": "vmxnet3", "e1000": "e1000", "e1000e": "e1000e", "pcnet32": "pcnet"}
	if model, ok := same[n.Model]; ok {
		return model
	}
	b.warn("nic-model", "check the guest's network configuration after the first boot",
		"network card %s is an e1000: QEMU has no %s", n.MAC, n.Model)
	return "e1000"
}
