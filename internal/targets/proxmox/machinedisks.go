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

// A bus is where disks go: a kind of slot and, for SCSI, the model of the controllers. Proxmox has
// one model for all SCSI disks of a guest.
type bus struct {
	kind  string
	model string
}

var (
	pvscsi = bus{"scsi", "pvscsi"}
	lsi    = bus{"scsi", "lsi"}
	virtio = bus{"scsi", "virtio-scsi-single"}
	sata   = bus{"sata", ""}
	ide    = bus{"ide", ""}

	virtioBlk = bus{"virtio", ""}
)

// seats are how many slots there are, by kind.
var seats = map[string]int{"scsi": 31, "sata": 6, "ide": 4, "virtio": 16}

// seat hands out the next slot of a kind.
func (b *builder) seat(kind string) (string, bool) {
	if b.taken == nil {
		b.taken = map[string]int{}
	}
	n := b.taken[kind]
	b.taken[kind]++
	return fmt.Sprintf("%s%d", kind, n), n < seats[kind]
}

// disks seats all disks in the order of VMware's controllers.
func (b *builder) disks() error {
	on, err := b.buses()
	if err != nil {
		return err
	}
	model := b.model(on)
	for i, c := range b.vm.Controllers {
		for _, d := range b.on(c) {
			if err := b.disk(d, on[i], model); err != nil {
				return err
			}
		}
	}
	b.base("scsihw", model)
	return nil
}

// on returns the disks of a controller, by index, in the order of their units.
func (b *builder) on(c inventory.Controller) []int {
	var disks []int
	for i, d := range b.vm.Disks {
		if d.Controller == c.Key {
			disks = append(disks, i)
		}
	}
	slices.SortStableFunc(disks, func(x, y int) int { return cmp.Compare(b.vm.Disks[x].Unit, b.vm.Disks[y].Unit) })
	return disks
}

// buses finds a bus for each controller that has disks.
func (b *builder) buses() ([]bus, error) {
	on := make([]bus, len(b.vm.Controllers))
	seen := 0
	for i, c := range b.vm.Controllers {
		disks := b.on(c)
		seen += len(disks)
		if len(disks) == 0 {
			continue
		}
		var err error
		if on[i], err = b.counterpart(c); err != nil {
			return nil, err
		}
	}
	if seen != len(b.vm.Disks) {
		return nil, fault.New(fault.Unsupported, "%d of %d disks are on no controller that is known", len(b.vm.Disks)-seen, len(b.vm.Disks)).
			WithHint("with the VM off, move them to an LSI Logic SAS or paravirtual controller in vSphere")
	}
	return on, nil
}

// counterpart is the bus that stands in for a VMware controller: the same hardware where Proxmox
// has it and its firmware boots from it.
func (b *builder) counterpart(c inventory.Controller) (bus, error) {
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
		if !b.efi() {
			return ide, nil
		}
		b.warn("ide", "if the guest does not find its disk, boot it from rescue media and add the ahci driver",
			"the disks of ide%d are on SATA: OVMF machines have no IDE disks", c.Number)
		return sata, nil
	case inventory.LSILogic:
		if b.efi() {
			return b.fallback(c, "efi-boot", "OVMF cannot boot from an LSI controller"), nil
		}
		b.warn("lsilogic", "if the guest does not find its disk, change the controller to a paravirtual one in vSphere first",
			"scsi%d is an LSI 53C1030 on VMware and an LSI 53C895A here: the guest needs its driver (sym53c8xx)", c.Number)
		return lsi, nil
	case inventory.LSISAS:
		return b.fallback(c, "lsisas", "Proxmox has no LSI SAS1068"), nil
	case inventory.NVMe:
		return b.fallback(c, "nvme", "Proxmox has no NVMe disks"), nil
	}
	return bus{}, fault.New(fault.Unsupported, "scsi%d is a %s controller, which Proxmox does not have", c.Number,
		cmp.Or(string(c.Bus), c.Unexpected, "unknown")).
		WithHint("with the VM off, give it a paravirtual or LSI Logic SAS controller in vSphere, boot it once, and migrate again")
}

// fallback is the bus whose driver the guest has most probably.
func (b *builder) fallback(c inventory.Controller, code, why string) bus {
	on, driver := sata, "ahci (Windows: storahci)"
	if isLinux(b.vm, b.def.Guest) {
		on, driver = virtio, "virtio_scsi"
	}
	b.warn(code, "make sure the guest starts with the driver "+driver+" before you migrate it, or convert it: --hardware virtio",
		"the disks of %s%d are on %s: %s", c.Bus, c.Number, cmp.Or(on.model, on.kind), why)
	return on
}

// model is the one that all SCSI disks get: that of the disk which boots, or else of the first.
func (b *builder) model(on []bus) string {
	first := ""
	for _, device := range b.vm.BootOrder {
		for i, c := range b.vm.Controllers {
			for _, d := range b.on(c) {
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
			b.warn("scsi-models", "see that the guest has the driver of "+first+", or put these disks on SATA: qm disk unlink and qm set",
				"the disks of %s%d are on %s: Proxmox has one model for all SCSI disks of a guest", c.Bus, c.Number, first)
		}
	}
	return first
}

func (b *builder) disk(i int, seat bus, model string) error {
	d := b.vm.Disks[i]
	slot, ok := b.seat(seat.kind)
	if !ok {
		return fault.New(fault.Unsupported, "disk %d is one more than there are places for on %s", d.Key, seat.kind).
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
	on, err := b.opts.storage(namemap.Datastore(d))
	if err != nil {
		return err
	}
	b.m.Disks = append(b.m.Disks, Disk{Source: i, Image: image, Slot: slot, On: on, Words: words})
	b.slots[fmt.Sprintf("disk:%d", d.Key)] = slot
	return nil
}
