package openstack

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/targets"
)

// Outline describes the VM without a request to the cloud. It does not resolve names of networks and
// volume types, and
// chooses no flavor; Check does.
func (p *Platform) Outline(def targets.Definition, _ targets.Outline) (targets.Outline, error) {
	m, err := machineOf(def, p.opts)
	if err != nil {
		return targets.Outline{}, err
	}
	o := targets.NewOutline(def)
	o.Target, o.Name, o.UUID = "openstack "+cmp.Or(p.cloud.name, "of the environment"), m.name, ""
	o.GuestAgent = def.GuestAgent() // Nova adds the channel to any hardware
	o.Machine, o.Tags = cmp.Or(m.properties["hw_machine_type"], "the cloud's default"), []string{imageTag(def.VM)}
	items, _ := tagMetadata(def.VM)
	for _, key := range slices.Sorted(maps.Keys(items)) {
		if strings.HasPrefix(key, tagKey) {
			o.Tags = append(o.Tags, key+"="+items[key])
		}
	}
	o.Warnings = append(o.Warnings, m.warnings...)
	for _, i := range def.VM.DisksInGuestOrder() {
		o.Disks = append(o.Disks, p.outlineDisk(def, m, i))
	}
	if m.boot >= 0 {
		o.Boot = append(o.Boot, fmt.Sprintf("disk:%d", def.VM.Disks[m.boot].Key))
	}
	for _, n := range def.VM.NICs {
		card := targets.OutlineCard{
			Key: n.Key, Model: m.properties["hw_vif_model"], MAC: n.MAC, From: n.Network, Down: n.LinkDown(),
			Network: cmp.Or(p.opts.Maps.Network(n.Network).To, p.opts.Network),
		}
		if p.opts.MACs == newMACs {
			card.MAC = "chosen by the cloud"
		}
		o.Cards = append(o.Cards, card)
	}
	return o, nil
}

// outlineDisk describes a disk's volume, or its image with boot=image. Nova uses the ID of the volume
// as the serial number.
func (p *Platform) outlineDisk(def targets.Definition, m *machine, i int) targets.OutlineDisk {
	d := def.VM.Disks[i]
	out := targets.OutlineDisk{Key: d.Key, Bus: m.bus, Size: d.Capacity, As: volumeName(m.name, i)}
	if m.bus == "scsi" {
		out.Bus = "virtio-scsi"
	}
	if p.opts.Boot == fromImage {
		out.On = "an image"
		return out
	}
	out.Size = int64(gibibytes(d.Capacity)) * gib
	if kind := p.opts.volumeType(d); kind != "" {
		out.On = "volume type " + kind
	}
	return out
}
