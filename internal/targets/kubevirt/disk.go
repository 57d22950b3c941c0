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

// addDisks adds a DataVolume for each disk, in the order of vm.Disks, and the disks in the order of
// VMware's
// controllers.
func (b *builder) addDisks() error {
	spec := &b.out.vm.Spec.Template.Spec
	for i, d := range b.vm.Disks {
		at := slices.IndexFunc(b.def.Images, func(img targets.Image) bool { return img.Key == d.Key })
		if at < 0 {
			return fault.New(fault.Internal, "disk %d has no image", d.Key)
		}
		class, err := b.opts.storageClass(namemap.Datastore(d))
		if err != nil {
			return err
		}
		dv := b.dataVolume(i, b.def.Images[at], class)
		b.out.disks, b.out.images = append(b.out.disks, dv), append(b.out.images, b.def.Images[at])
		spec.Volumes = append(spec.Volumes, volume{Name: volumeName(i), DataVolume: reference{dv.Metadata.Name}})
	}
	for _, i := range b.vm.DisksInGuestOrder() {
		d := b.vm.Disks[i]
		x := diskDevice{Name: volumeName(i), Disk: diskBus{"sata"}, BootOrder: b.order[diskKey(d)]}
		switch b.def.Hardware {
		case targets.Virtio:
			x.Disk.Bus = "scsi" // virtio-scsi: Linux keeps its sdX names
			x.Serial = diskSerial(d)
		case targets.VirtioBlk:
			x.Disk.Bus = "virtio" // QEMU truncates serial numbers there, too
		}
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, x)
	}
	if !b.usesVirtio() {
		b.warnOfBuses()
	}
	return nil
}

// volumeName returns the name of the i-th disk within the VirtualMachine.
func volumeName(i int) string { return fmt.Sprintf("disk%d", i) }

// diskKey returns the name of a disk in inventory.VM.BootOrder.
func diskKey(d inventory.Disk) string { return fmt.Sprintf("disk:%d", d.Key) }

// diskSerial returns the disk's UUID without the characters that KubeVirt rejects. Disks on SATA have
// no serial
// number, because QEMU truncates it there.
func diskSerial(d inventory.Disk) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, d.UUID)
}

// warnOfBuses adds a warning for each controller whose disks move to SATA.
func (b *builder) warnOfBuses() {
	for _, c := range b.vm.Controllers {
		on := func(d inventory.Disk) bool { return d.Controller == c.Key }
		if c.Bus == inventory.AHCI || !slices.ContainsFunc(b.vm.Disks, on) {
			continue
		}
		b.warn("bus", "before the migration, make sure that the guest loads the driver ahci (Windows: storahci) at boot; or convert it: --hardware virtio",
			"the disks of %s%d are on SATA: KubeVirt has no %s", cmp.Or(string(c.Bus), c.Unexpected), c.Number, cmp.Or(string(c.Bus), c.Unexpected))
	}
}

// dataVolume returns the DataVolume for the VM's i-th disk. Its annotations make CDI bind the volume
// immediately,
// although no pod uses it, and keep it after the upload.
func (b *builder) dataVolume(i int, img targets.Image, class string) dataVolume {
	notes := identityNotes(b.vm)
	notes["cdi.kubevirt.io/storage.bind.immediate.requested"] = "true"
	notes["cdi.kubevirt.io/storage.deleteAfterCompletion"] = "false"
	if img.Root != "" {
		notes[rootNote] = img.Root
	}
	s := storage{Class: class, VolumeMode: b.opts.VolumeMode}
	s.Resources.Requests.Storage = formatQuantity(img.Size)
	if b.opts.AccessMode != "" {
		s.AccessModes = []string{b.opts.AccessMode}
	}
	return dataVolume{
		APIVersion: diskAPI, Kind: "DataVolume",
		Metadata: meta{Name: diskName(b.name, i), Namespace: b.opts.namespaceName(), Labels: sourceLabels(b.vm), Annotations: notes},
		Spec:     diskSpec{Source: source{Upload: &empty{}}, ContentType: "kubevirt", Storage: s},
	}
}

// bootOrder returns the position of each boot device, from 1. Disks that are not in the VM's boot order
// come last,
// because VMware's firmware tries them, too. CD-ROM drives and floppies are omitted.
func bootOrder(vm *inventory.VM) map[string]uint {
	devices := slices.Clone(vm.BootOrder)
	for _, i := range vm.DisksInGuestOrder() {
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
