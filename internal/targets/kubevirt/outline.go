package kubevirt

import (
	"fmt"
	"maps"
	"slices"

	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

var (
	_ platform.Outliner = (*Folder)(nil)
	_ platform.Outliner = (*Cluster)(nil)
)

// Outline describes the VM that the manifests define.
func (f *Folder) Outline(def targets.Definition, _ targets.Outline) (targets.Outline, error) {
	return newOutline(def, f.opts, f.String())
}

// Outline describes the VM that Deliver would create.
func (c *Cluster) Outline(def targets.Definition, _ targets.Outline) (targets.Outline, error) {
	return newOutline(def, c.opts, c.String())
}

// newOutline converts the objects for def to an Outline.
func newOutline(def targets.Definition, opts Options, place string) (targets.Outline, error) {
	def.Images = definitionOf(def.VM).Images
	made, err := newObjects(def, opts)
	if err != nil {
		return targets.Outline{}, err
	}
	o := targets.NewOutline(def)
	o.Target, o.Name, o.Machine = place, made.vm.Metadata.Name, made.vm.Spec.Template.Spec.Domain.Machine.Type
	o.Warnings = append(o.Warnings, made.warnings...)
	o.Tags = nil
	for _, key := range slices.Sorted(maps.Keys(made.vm.Metadata.Labels)) {
		o.Tags = append(o.Tags, key+"="+made.vm.Metadata.Labels[key])
	}
	order := map[uint]string{}
	made.outlineDisks(def, &o, order)
	made.outlineCards(def, &o, order)
	for _, at := range slices.Sorted(maps.Keys(order)) {
		o.Boot = append(o.Boot, order[at])
	}
	return o, nil
}

// outlineDisks adds the disks to o and their boot positions to order.
func (made *Objects) outlineDisks(def targets.Definition, o *targets.Outline, order map[uint]string) {
	devices := made.vm.Spec.Template.Spec.Domain.Devices.Disks
	for at, i := range def.VM.DisksInGuestOrder() {
		d, volume, device := def.VM.Disks[i], made.disks[i], devices[at]
		on := ""
		if class := volume.Spec.Storage.Class; class != "" {
			on = "storage class " + class
		}
		bus := device.Disk.Bus
		if bus == "scsi" {
			bus = "virtio-scsi"
		}
		o.Disks = append(o.Disks, targets.OutlineDisk{
			Key: d.Key, Bus: bus, Size: d.Capacity, On: on, As: volume.Metadata.Name, Serial: device.Serial,
		})
		if device.BootOrder != 0 {
			order[device.BootOrder] = diskKey(d)
		}
	}
}

// outlineCards adds the cards to o and their boot positions to order.
func (made *Objects) outlineCards(def targets.Definition, o *targets.Outline, order map[uint]string) {
	spec := made.vm.Spec.Template.Spec
	for i, n := range def.VM.NICs {
		c, joined := spec.Domain.Devices.Interfaces[i], Pod
		if m := spec.Networks[i].Multus; m != nil {
			joined = multusPrefix + m.Network
		}
		o.Cards = append(o.Cards, targets.OutlineCard{Key: n.Key, Model: c.Model, MAC: c.MAC, From: n.Network, Network: joined, Down: c.State == "down"})
		if c.BootOrder != 0 {
			order[c.BootOrder] = fmt.Sprintf("net:%d", n.Key)
		}
	}
}
