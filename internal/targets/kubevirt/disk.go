package kubevirt

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

// disks adds the VM's disks in the order of VMware's controllers, and a DataVolume for each. The
// DataVolumes are numbered as the VM lists its disks, like the images.
func (b *builder) disks() error {
	spec := &b.out.vm.Spec.Template.Spec
	for i, d := range b.vm.Disks {
		at := slices.IndexFunc(b.def.Images, func(img targets.Image) bool { return img.Key == d.Key })
		if at < 0 {
			return fault.New(fault.Internal, "disk %d has no image", d.Key)
		}
		class, err := b.opts.class(namemap.Datastore(d))
		if err != nil {
			return err
		}
		dv := b.dataVolume(i, b.def.Images[at], class)
		b.out.disks, b.out.images = append(b.out.disks, dv), append(b.out.images, b.def.Images[at])
		spec.Volumes = append(spec.Volumes, volume{Name: volumeName(i), DataVolume: reference{dv.Metadata.Name}})
	}
	for _, i := range b.vm.Seated() {
		d := b.vm.Disks[i]
		x := diskDevice{Name: volumeName(i), Disk: diskBus{"sata"}, BootOrder: b.order[diskKey(d)]}
		switch b.def.Hardware {
		case targets.Virtio:
			x.Disk.Bus = "scsi" // which is virtio-scsi: Linux keeps its sdX names
			x.Serial = serial(d)
		case targets.VirtioBlk:
			x.Disk.Bus = "virtio" // whose serial QEMU cuts, too
		}
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, x)
	}
	if !b.virtio() {
		b.warnOfBuses()
	}
	return nil
}

func volumeName(i int) string { return fmt.Sprintf("disk%d", i) }

func diskKey(d inventory.Disk) string { return fmt.Sprintf("disk:%d", d.Key) }

// serial is what the guest reads as the disk's serial number, of the signs that KubeVirt takes. SATA has
// none: QEMU cuts it there.
func serial(d inventory.Disk) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, d.UUID)
}

// warnOfBuses names the controllers whose disks the guest will find on SATA.
func (b *builder) warnOfBuses() {
	for _, c := range b.vm.Controllers {
		on := func(d inventory.Disk) bool { return d.Controller == c.Key }
		if c.Bus == inventory.AHCI || !slices.ContainsFunc(b.vm.Disks, on) {
			continue
		}
		b.warn("bus", "make sure the guest starts with the driver ahci (Windows: storahci) before you migrate it, or convert it: --hardware virtio",
			"the disks of %s%d are on SATA: KubeVirt has no %s", cmp.Or(string(c.Bus), c.Unexpected), c.Number, cmp.Or(string(c.Bus), c.Unexpected))
	}
}

// dataVolume is where the image of the VM's i-th disk goes. It is bound at once, as nothing that uses
// it is there yet, and it stays when CDI is done with it.
func (b *builder) dataVolume(i int, img targets.Image, class string) dataVolume {
	notes := identity(b.vm)
	notes["cdi.kubevirt.io/storage.bind.immediate.requested"] = "true"
	notes["cdi.kubevirt.io/storage.deleteAfterCompletion"] = "false"
	if img.Root != "" {
		notes[rootNote] = img.Root
	}
	s := storage{Class: class, VolumeMode: b.opts.VolumeMode}
	s.Resources.Requests.Storage = quantity(img.Size)
	if b.opts.AccessMode != "" {
		s.AccessModes = []string{b.opts.AccessMode}
	}
	return dataVolume{
		APIVersion: diskAPI, Kind: "DataVolume",
		Metadata: meta{Name: diskName(b.name, i), Namespace: b.opts.namespace(), Labels: labels(b.vm), Annotations: notes},
		Spec:     diskSpec{Source: source{Upload: &empty{}}, ContentType: "kubevirt", Storage: s},
	}
}

// bootOrder gives each disk and card that vm boots from its place, from 1. Disks that the VM does not
// list come last: VMware's firmware tries them, too. What KubeVirt does not get, CD-ROM drives and
// floppies, has no place.
func bootOrder(vm *inventory.VM) map[string]uint {
	devices := slices.Clone(vm.BootOrder)
	for _, i := range vm.Seated() {
		devices = append(devices, diskKey(vm.Disks[i]))
	}
	there := map[string]bool{}
	for _, d := range vm.Disks {
		there[diskKey(d)] = true
	}
	for _, n := range vm.NICs {
		there[cardKey(n)] = true
	}
	order := map[string]uint{}
	for _, device := range devices {
		if there[device] && order[device] == 0 {
			order[device] = uint(len(order) + 1)
		}
	}
	return order
}
