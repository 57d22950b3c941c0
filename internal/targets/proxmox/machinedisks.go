package proxmox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
)

// bus is a kind of slot and, for SCSI, a model of the controller. Proxmox has one model for all SCSI
// disks of a guest.
type bus struct {
	kind  string // prefix of the slots, such as "scsi"
	model string // value of the option scsihw; empty for other buses
}

var (
	pvscsi = bus{"scsi", "pvscsi"}             // VMware's paravirtual controller, in QEMU
	lsi    = bus{"scsi", "lsi"}                // LSI 53C895A
	virtio = bus{"scsi", "virtio-scsi-single"} // one controller for each disk
	sata   = bus{"sata", ""}                   // AHCI with six ports
	ide    = bus{"ide", ""}                    // two channels of two drives

	virtioBlk = bus{"virtio", ""} // one PCI device for each disk
)

// slotCounts contains the number of slots by kind.
var slotCounts = map[string]int{"scsi": 31, "sata": 6, "ide": 4, "virtio": 16}

// nextSlot returns the next slot of a kind, and false if there are no more.
func (b *builder) nextSlot(kind string) (string, bool) {
	if b.usedSlots == nil {
		b.usedSlots = map[string]int{}
	}
	n := b.usedSlots[kind]
	b.usedSlots[kind]++
	return fmt.Sprintf("%s%d", kind, n), n < slotCounts[kind]
}

// addDisks assigns slots to all disks, in the order of VMware's controllers.
func (b *builder) addDisks() error {
	on, err := b.chooseBuses()
	if err != nil {
		return err
	}
	model := b.scsiModel(on)
	for i, c := range b.vm.Controllers {
		for _, d := range b.disksOn(c) {
			if err := b.addDisk(d, on[i], model); err != nil {
				return err
			}
		}
	}
	b.addParam("scsihw", model)
	return nil
}

// disksOn returns the indexes of a controller's disks, in the order of their unit numbers.
func (b *builder) disksOn(c inventory.Controller) []int {
	var disks []int
	for i, d := range b.vm.Disks {
		if d.Controller == c.Key {
			disks = append(disks, i)
		}
	}
	slices.SortStableFunc(disks, func(x, y int) int { return cmp.Compare(b.vm.Disks[x].Unit, b.vm.Disks[y].Unit) })
	return disks
}

// chooseBuses returns the bus for each controller with disks. A disk without a known controller is
// fault.Unsupported.
func (b *builder) chooseBuses() ([]bus, error) {
	on := make([]bus, len(b.vm.Controllers))
	seen := 0
	for i, c := range b.vm.Controllers {
		disks := b.disksOn(c)
		seen += len(disks)
		if len(disks) == 0 {
			continue
		}
		var err error
		if on[i], err = b.chooseBus(c); err != nil {
			return nil, err
		}
	}
	if seen != len(b.vm.Disks) {
		return nil, fault.New(fault.Unsupported, "%d of %d disks are on an unknown controller", len(b.vm.Disks)-seen, len(b.vm.Disks)).
			WithHint("with the VM off, move them to an LSI Logic SAS or paravirtual controller in vSphere")
	}
	return on, nil
}

// chooseBus returns the bus that replaces a VMware controller: the same hardware if Proxmox has it and
// its firmware can
// boot from it.
func (b *builder) chooseBus(c inventory.Controller) (bus, error) {
	switch b.hardware {
	case targets.Virtio:
		return virtio, nil
	case targets.VirtioBlk:
		return virtioBlk, nil
	}
	switch c.Bus {
	case inventory.PVSCSI:
		return pvscsi, nil
	case inventory.AHCI:
		return sata, nil
	case inventory.IDE:
		if !b.isEFI() {
			return ide, nil
		}
		b.warn("ide", "if the guest does not find its disk, boot it from rescue media and add the ahci driver",
			"the disks of ide%d are on SATA: OVMF machines have no IDE disks", c.Number)
		return sata, nil
	case inventory.LSILogic:
		if b.isEFI() {
			return b.fallbackBus(c, "efi-boot", "OVMF cannot boot from an LSI controller"), nil
		}
		b.warn("lsilogic", "if the guest does not find its disk, change the controller to a paravirtual one in vSphere first",
			"scsi%d is an LSI 53C1030 on VMware and an LSI 53C895A here: the guest needs its driver (sym53c8xx)", c.Number)
		return lsi, nil
	case inventory.LSISAS:
		return b.fallbackBus(c, "lsisas", "Proxmox has no LSI SAS1068"), nil
	case inventory.NVMe:
		return b.fallbackBus(c, "nvme", "Proxmox has no NVMe disks"), nil
	}
	return bus{}, fault.New(fault.Unsupported, "scsi%d is a %s controller, which Proxmox does not have", c.Number,
		cmp.Or(string(c.Bus), c.Unexpected, "unknown")).
		WithHint("with the VM off, give it a paravirtual or LSI Logic SAS controller in vSphere, boot it once, and migrate again")
}

// fallbackBus returns the bus for which the guest most probably has a driver, and adds a warning.
func (b *builder) fallbackBus(c inventory.Controller, code, why string) bus {
	on, driver := sata, "ahci (Windows: storahci)"
	if isLinux(b.vm, b.def.Guest) {
		on, driver = virtio, "virtio_scsi"
	}
	b.warn(code, "before the migration, make sure that the guest loads the driver "+driver+" at boot; or convert it: --hardware virtio",
		"the disks of %s%d are on %s: %s", c.Bus, c.Number, cmp.Or(on.model, on.kind), why)
	return on
}

// scsiModel returns the model of all SCSI disks: the boot disk's, or else the first disk's. It adds a
// warning for
// controllers with another model.
func (b *builder) scsiModel(on []bus) string {
	first := ""
	for _, device := range b.vm.BootOrder {
		for i, c := range b.vm.Controllers {
			for _, d := range b.disksOn(c) {
				if first == "" && device == fmt.Sprintf("disk:%d", b.vm.Disks[d].Key) {
					first = on[i].model
				}
			}
		}
	}
	for _, each := range on {
		first = cmp.Or(first, each.model)
	}
	first = cmp.Or(first, virtio.model)
	for i, c := range b.vm.Controllers {
		if on[i].model != "" && on[i].model != first {
			b.warn("scsi-models", "check that the guest has the driver of "+first+", or move these disks to SATA: qm disk unlink and qm set",
				"the disks of %s%d are on %s: Proxmox has one model for all SCSI disks of a guest", c.Bus, c.Number, first)
		}
	}
	return first
}

// addDisk adds the i-th disk of the VM. It returns fault.Unsupported if the bus is full.
func (b *builder) addDisk(i int, seat bus, model string) error {
	d := b.vm.Disks[i]
	slot, ok := b.nextSlot(seat.kind)
	if !ok {
		return fault.New(fault.Unsupported, "disk %d does not fit on %s", d.Key, seat.kind).
			WithHint("move the disk to a paravirtual controller in vSphere, or convert the guest: --hardware virtio")
	}
	words := ",discard=on"
	if seat.kind == "ide" {
		words = ""
	}
	if seat == virtioBlk || seat.kind == "scsi" && model == virtio.model {
		words += ",iothread=1"
	}
	// QEMU cuts the serial of other buses at 20 characters.
	if serial := strings.ReplaceAll(d.UUID, "-", ""); seat.kind == "scsi" && isName(serial) {
		words += ",serial=" + serial
	}
	image := slices.IndexFunc(b.def.Images, func(img targets.Image) bool { return img.Key == d.Key })
	if image < 0 && len(b.def.Images) > 0 {
		return fault.New(fault.Internal, "disk %d has no image", d.Key)
	}
	on, err := b.opts.storageOf(namemap.Datastore(d))
	if err != nil {
		return err
	}
	b.m.Disks = append(b.m.Disks, Disk{Source: i, Image: image, Slot: slot, On: on, Words: words})
	b.slots[fmt.Sprintf("disk:%d", d.Key)] = slot
	return nil
}
