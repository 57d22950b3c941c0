package proxmox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/targets"
)

// Outline describes the guest without a request to the node. The node chooses the VMID and the names of
// volumes.
func (p *Platform) Outline(def targets.Definition, _ targets.Outline) (targets.Outline, error) {
	def.Images = nil
	m, err := Config(def, p.opts)
	if err != nil {
		return targets.Outline{}, err
	}
	o := targets.NewOutline(def)
	o.Target, o.Name, o.Machine = "proxmox "+p.node, m.Name, m.baseValue("machine", "i440fx")
	o.Tags = append([]string{commonTag, ownTag(def.VM)}, vmTags(def.VM)...)
	o.Warnings = append(o.Warnings, m.Warnings...)
	slots := map[string]string{}
	m.outlineDisks(def, &o, slots)
	if err := m.outlineCards(def, p.opts, &o, slots); err != nil {
		return targets.Outline{}, err
	}
	for _, param := range m.Base {
		if param.Value == "none,media=cdrom" {
			o.CDROMs++
			slots[param.Key] = "cdrom"
		}
	}
	for slot := range strings.SplitSeq(strings.TrimPrefix(m.Boot, "order="), ";") {
		if device := slots[slot]; device != "" {
			o.Boot = append(o.Boot, device)
		}
	}
	return o, nil
}

// baseValue returns the value of an option, or none if the guest does not have it.
func (m Machine) baseValue(key, none string) string {
	at := slices.IndexFunc(m.Base, func(p Param) bool { return p.Key == key })
	if at < 0 {
		return none
	}
	return m.Base[at].Value
}

// outlineDisks adds the disks to o and their slots to slots.
func (m Machine) outlineDisks(def targets.Definition, o *targets.Outline, slots map[string]string) {
	for _, d := range m.Disks {
		at := def.VM.Disks[d.Source]
		bus := d.Slot
		if strings.HasPrefix(bus, "scsi") {
			bus = m.baseValue("scsihw", "lsi") + " " + bus
		}
		_, serial, _ := strings.Cut(d.Words, ",serial=")
		o.Disks = append(o.Disks, targets.OutlineDisk{
			Key: at.Key, Bus: bus, Size: at.Capacity, On: "storage " + d.On, As: d.Slot, Serial: serial,
		})
		slots[d.Slot] = fmt.Sprintf("disk:%d", at.Key)
	}
}

// outlineCards adds the cards to o and their slots to slots.
func (m Machine) outlineCards(def targets.Definition, opts Options, o *targets.Outline, slots map[string]string) error {
	joined, err := opts.cardNetworks(def.VM)
	if err != nil {
		return err
	}
	for i, n := range def.VM.NICs {
		slot := fmt.Sprintf("net%d", i)
		model, _, _ := strings.Cut(m.baseValue(slot, ""), ",")
		model, _, _ = strings.Cut(model, "=")
		o.Cards = append(o.Cards, targets.OutlineCard{
			Key: n.Key, Model: model, MAC: n.MAC, From: n.Network, Network: joined[i].bridge, VLAN: joined[i].tag, Down: n.LinkDown(),
		})
		slots[slot] = fmt.Sprintf("net:%d", n.Key)
	}
	return nil
}
