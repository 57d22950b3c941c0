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

// Outline says what def would be published as, with images as Plan names them. It looks at no file.
func (t *Target) Outline(def targets.Definition) (targets.Outline, error) {
	if err := t.checkStorages(def.VM); err != nil {
		return targets.Outline{}, err
	}
	def.Images = t.images(def.VM)
	opts := t.opts.Domain
	opts.nvram = t.nvram(def, t.Folder(def.VM))
	text, warnings, err := Domain(def, opts)
	if err != nil {
		return targets.Outline{}, err
	}
	var x libvirtxml.Domain
	if err := x.Unmarshal(text); err != nil {
		return targets.Outline{}, fmt.Errorf("read the domain of VM %s: %w", def.VM.Name, err)
	}
	o := targets.NewOutline(def)
	o.Place, o.Name, o.Machine = "folder "+t.root, x.Name, x.OS.Type.Machine
	o.Warnings = append(o.Warnings, warnings...)
	s := sketch{vm: def.VM, x: &x, out: &o, order: map[uint]string{}}
	s.disks(def.Images)
	s.cards()
	for _, at := range slices.Sorted(maps.Keys(s.order)) {
		o.Boot = append(o.Boot, s.order[at])
	}
	return o, nil
}

// A sketch makes an Outline of a domain.
type sketch struct {
	vm    *inventory.VM
	x     *libvirtxml.Domain
	out   *targets.Outline
	order map[uint]string // boot devices by their place
}

func (s *sketch) disks(images []targets.Image) {
	for _, d := range s.x.Devices.Disks {
		if d.Device == "cdrom" {
			s.out.CDROMs++
			s.boots(d.Boot, "cdrom")
			continue
		}
		i := slices.IndexFunc(images, func(img targets.Image) bool { return img.Final == d.Source.File.File })
		if i < 0 {
			continue // Domain names images only
		}
		img := images[i]
		s.boots(d.Boot, fmt.Sprintf("disk:%d", img.Key))
		s.out.Disks = append(s.out.Disks, targets.OutlineDisk{
			Key: img.Key, Bus: s.bus(d), Size: img.Size, On: filepath.Dir(img.Final), As: filepath.Base(img.Final), Serial: d.Serial,
		})
	}
}

// bus is the model of a disk's controller, or its kind where that has but one.
func (s *sketch) bus(d libvirtxml.DomainDisk) string {
	for _, c := range s.x.Devices.Controllers {
		if c.Type == d.Target.Bus && c.Index != nil && *c.Index == *d.Address.Drive.Controller {
			return cmp.Or(c.Model, c.Type)
		}
	}
	return d.Target.Bus
}

func (s *sketch) cards() {
	for i, c := range s.x.Devices.Interfaces {
		n := s.vm.NICs[i] // they are in one order
		card := targets.OutlineCard{Key: n.Key, Model: c.Model.Type, MAC: n.MAC, From: n.Network, Down: c.Link != nil && c.Link.State == "down"}
		if c.Source.Bridge != nil {
			card.Network = bridgePrefix + c.Source.Bridge.Bridge
		} else {
			card.Network = c.Source.Network.Network
		}
		if c.VLan != nil {
			card.VLAN = int(c.VLan.Tags[0].ID)
		}
		s.boots(c.Boot, fmt.Sprintf("net:%d", n.Key))
		s.out.Cards = append(s.out.Cards, card)
	}
}

func (s *sketch) boots(b *libvirtxml.DomainDeviceBoot, device string) {
	if b != nil {
		s.order[b.Order] = device
	}
}
