package dir

import (
	"fmt"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// counterpart returns the bus that stands in for a VMware controller. It is the same
// hardware wherever QEMU has it and the firmware can boot from it. Guests that have the drivers
// get virtio-scsi, which every firmware boots from, with a controller for each that they had.
func (b *domainBuilder) counterpart(c inventory.Controller) bus {
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
		on = b.fallback(c, "nvme", "libvirt has no NVMe disks before version 11.5")
	case b.efi() && c.Bus == inventory.IDE:
		on = sata
		b.warn("ide", "if the guest does not find its disk, boot it from rescue media and add the ahci driver",
			"the disks of ide%d are on SATA: EFI machines have no IDE", c.Number)
	case b.efi() && on.kind == "scsi" && b.holdsBootDisk(c):
		on = b.fallback(c, "efi-boot", "OVMF as distributions build it cannot boot from "+on.model)
	case c.Bus == inventory.LSILogic:
		b.warn("lsilogic", "if the guest does not find its disk, change the controller to LSI Logic SAS in vSphere first",
			"scsi%d is an LSI 53C1030 on VMware and an LSI 53C895A in QEMU: the guest needs its driver (sym53c8xx)", c.Number)
	}
	return on
}

// fallback is the bus for disks that cannot stay where they are: one that OVMF boots
// from (measured with OVMF 2022.11: virtio-scsi, SATA and NVMe, no other SCSI) and
// whose driver the guest probably has. Linux keeps its sdX names on either.
func (b *domainBuilder) fallback(c inventory.Controller, code, why string) bus {
	on, driver := sata, "ahci (Windows: storahci)"
	if b.linux() {
		on, driver = virtio, "virtio_scsi"
	}
	name := on.model
	if name == "" {
		name = on.kind
	}
	b.warn(code, "make sure the guest starts with the driver "+driver+" before you migrate it",
		"the disks of %s%d are on %s: %s", c.Bus, c.Number, name, why)
	return on
}

// holdsBootDisk reports whether firmware looks at a disk of c before any other.
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

// cards keeps every network card's MAC, and its model unless the guest is on virtio.
func (b *domainBuilder) cards() error {
	order := b.bootOrder()
	for _, n := range b.vm.NICs {
		x := libvirtxml.DomainInterface{
			Source: b.opts.network(n),
			Model:  &libvirtxml.DomainInterfaceModel{Type: b.cardModel(n)},
			Boot:   bootEntry(order, fmt.Sprintf("net:%d", n.Key)),
		}
		if n.MAC != "" { // else libvirt chooses one
			x.MAC = &libvirtxml.DomainInterfaceMAC{Address: n.MAC}
		}
		if tag := b.opts.Maps.Network(n.Network).VLAN; tag != 0 {
			x.VLan = &libvirtxml.DomainInterfaceVLan{Tags: []libvirtxml.DomainInterfaceVLanTag{{ID: uint(tag)}}}
			b.warn("vlan", "make sure of one of the two, or name a bridge that is in the VLAN: ip -d link show type bridge",
				"network card %s is in VLAN %d: libvirt tags on bridges of Open vSwitch, and since 11.0 on those of Linux, and starts no VM where it cannot", n.MAC, tag)
		}
		if n.LinkDown() {
			x.Link = &libvirtxml.DomainInterfaceLink{State: "down"}
		}
		b.domain.Devices.Interfaces = append(b.domain.Devices.Interfaces, x)
	}
	return nil
}

func (b *domainBuilder) cardModel(n inventory.NIC) string {
	if model := b.opts.Maps.Network(n.Network).Model; model != "" {
		return model
	}
	if b.virtio() {
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
