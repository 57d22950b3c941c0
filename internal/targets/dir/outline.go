package dir

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// Outline describes the VM that Publish would create, with the image names that Plan returns. It
// accesses no images.
func (t *Target) Outline(def targets.Definition) (targets.Outline, error) {
	if err := t.checkStorages(def.VM); err != nil {
		return targets.Outline{}, err
	}
	def.Images = t.planImages(def.VM)
	opts := t.opts.Domain
	opts.nvram = t.planNVRAM(def, t.Folder(def.VM))
	text, warnings, err := Domain(def, opts)
	if err != nil {
		return targets.Outline{}, err
	}
	var x libvirtxml.Domain
	if err := x.Unmarshal(text); err != nil {
		return targets.Outline{}, fmt.Errorf("read the domain of VM %s: %w", def.VM.Name, err)
	}
	o := targets.NewOutline(def)
	o.Target, o.Name, o.Machine = "folder "+t.root, x.Name, x.OS.Type.Machine
	o.Warnings = append(o.Warnings, warnings...)
	s := outlineBuilder{vm: def.VM, x: &x, out: &o, order: map[uint]string{}}
	s.addDisks(def.Images)
	s.addCards()
	for _, at := range slices.Sorted(maps.Keys(s.order)) {
		o.Boot = append(o.Boot, s.order[at])
	}
	return o, nil
}

// outlineBuilder converts a domain to an Outline.
type outlineBuilder struct {
	vm    *inventory.VM      // the source VM
	x     *libvirtxml.Domain // the domain
	out   *targets.Outline   // the result
	order map[uint]string    // boot devices by their order attribute
}

// addDisks adds the domain's disks and counts its CD-ROM drives.
func (s *outlineBuilder) addDisks(images []targets.Image) {
	for _, d := range s.x.Devices.Disks {
		if d.Device == "cdrom" {
			s.out.CDROMs++
			s.setBootOrder(d.Boot, "cdrom")
			continue
		}
		i := slices.IndexFunc(images, func(img targets.Image) bool { return img.Final == d.Source.File.File })
		if i < 0 {
			continue // Domain names images only
		}
		img := images[i]
		s.setBootOrder(d.Boot, fmt.Sprintf("disk:%d", img.Key))
		s.out.Disks = append(s.out.Disks, targets.OutlineDisk{
			Key: img.Key, Bus: s.diskBus(d), Size: img.Size, On: filepath.Dir(img.Final), As: filepath.Base(img.Final), Serial: d.Serial,
		})
	}
}

// diskBus returns the model of a disk's controller, or its type if it has no model attribute.
func (s *outlineBuilder) diskBus(d libvirtxml.DomainDisk) string {
	for _, c := range s.x.Devices.Controllers {
		if c.Type == d.Target.Bus && c.Index != nil && *c.Index == *d.Address.Drive.Controller {
			return cmp.Or(c.Model, c.Type)
		}
	}
	return d.Target.Bus
}

// addCards adds the domain's network cards.
func (s *outlineBuilder) addCards() {
	for i, c := range s.x.Devices.Interfaces {
		n := s.vm.NICs[i] // Domain adds the cards in this order
		card := targets.OutlineCard{Key: n.Key, Model: c.Model.Type, MAC: n.MAC, From: n.Network, Down: c.Link != nil && c.Link.State == "down"}
		if c.Source.Bridge != nil {
			card.Network = bridgePrefix + c.Source.Bridge.Bridge
		} else {
			card.Network = c.Source.Network.Network
		}
		if c.VLan != nil {
			card.VLAN = int(c.VLan.Tags[0].ID)
		}
		s.setBootOrder(c.Boot, fmt.Sprintf("net:%d", n.Key))
		s.out.Cards = append(s.out.Cards, card)
	}
}

// setBootOrder records the boot position of a device. b is nil if the firmware does not boot from it.
func (s *outlineBuilder) setBootOrder(b *libvirtxml.DomainDeviceBoot, device string) {
	if b != nil {
		s.order[b.Order] = device
	}
}
