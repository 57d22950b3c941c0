package proxmox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/targets"
)

// Outline says what guest def becomes. Its VMID, and the names of its volumes, are the node's to choose.
func (p *Place) Outline(def targets.Definition, _ targets.Outline) (targets.Outline, error) {
	def.Images = nil
	m, err := Config(def, p.opts)
	if err != nil {
		return targets.Outline{}, err
	}
	o := targets.NewOutline(def)
	o.Place, o.Name, o.Machine = "proxmox "+p.node, m.Name, m.value("machine", "i440fx")
	o.Tags = append([]string{tag, ownTag(def.VM)}, vmTags(def.VM)...)
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

// value is a parameter's, or what it is where there is none.
func (m Machine) value(key, none string) string {
	at := slices.IndexFunc(m.Base, func(p Param) bool { return p.Key == key })
	if at < 0 {
		return none
	}
	return m.Base[at].Value
}

func (m Machine) outlineDisks(def targets.Definition, o *targets.Outline, slots map[string]string) {
	for _, d := range m.Disks {
		at := def.VM.Disks[d.Source]
		bus := d.Slot
		if strings.HasPrefix(bus, "scsi") {
			bus = m.value("scsihw", "lsi") + " " + bus
		}
		_, serial, _ := strings.Cut(d.Words, ",serial=")
		o.Disks = append(o.Disks, targets.OutlineDisk{
			Key: at.Key, Bus: bus, Size: at.Capacity, On: "storage " + d.On, As: d.Slot, Serial: serial,
		})
		slots[d.Slot] = fmt.Sprintf("disk:%d", at.Key)
	}
}

func (m Machine) outlineCards(def targets.Definition, opts Options, o *targets.Outline, slots map[string]string) error {
	joined, err := opts.networks(def.VM)
	if err != nil {
		return err
	}
	for i, n := range def.VM.NICs {
		slot := fmt.Sprintf("net%d", i)
		model, _, _ := strings.Cut(m.value(slot, ""), ",")
		model, _, _ = strings.Cut(model, "=")
		o.Cards = append(o.Cards, targets.OutlineCard{
			Key: n.Key, Model: model, MAC: n.MAC, From: n.Network, Network: joined[i].bridge, VLAN: joined[i].tag, Down: n.LinkDown(),
		})
		slots[slot] = fmt.Sprintf("net:%d", n.Key)
	}
	return nil
}
