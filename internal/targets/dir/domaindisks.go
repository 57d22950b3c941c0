package dir

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// checkHardware refuses a VM whose disks QEMU has no controller for, before anything
// is copied.
func checkHardware(vm *inventory.VM) error {
	for _, d := range vm.Disks {
		c := controllerOf(vm, d)
		switch c.Bus {
		case inventory.PVSCSI, inventory.LSILogic, inventory.LSISAS, inventory.NVMe, inventory.AHCI, inventory.IDE:
			continue
		}
		return fault.New(fault.Unsupported, "disk %d of VM %s is on a %s controller, which QEMU does not have",
			d.Key, vm.Name, cmp.Or(string(c.Bus), c.Unexpected, "unknown")).
			WithHint("with the VM off, give it an LSI Logic SAS controller in vSphere, boot it once, and migrate again")
	}
	return nil
}

func controllerOf(vm *inventory.VM, d inventory.Disk) inventory.Controller {
	for _, c := range vm.Controllers {
		if c.Key == d.Controller {
			return c
		}
	}
	return inventory.Controller{}
}

// A bus is a kind of controller that libvirt offers.
type bus struct {
	kind  string // <controller type=…> and <target bus=…>
	model string // <controller model=…>; "" where there is one only
	seats int    // disks on one controller, by QEMU's limits
}

var (
	pvscsi   = bus{"scsi", "vmpvscsi", 64}
	virtio   = bus{"scsi", "virtio-scsi", 64}
	lsilogic = bus{"scsi", "lsilogic", 7}
	lsisas   = bus{"scsi", "lsisas1068", 8}
	sata     = bus{"sata", "", 6}
	ide      = bus{"ide", "", 4}

	// virtioBlk has no controllers: each disk is a PCI device, of which a machine has some 20.
	virtioBlk = bus{"virtio", "", 20}
)

// storage seats all disks and CD-ROM drives, in the order of VMware's controllers.
func (b *domainBuilder) storage() error {
	if err := checkHardware(b.vm); err != nil {
		return err
	}
	s := seating{devices: b.domain.Devices}
	order := b.bootOrder()
	for _, c := range b.vm.Controllers {
		disks := disksOn(b.vm, c)
		if len(disks) == 0 {
			continue
		}
		on := b.counterpart(c)
		if on != virtioBlk {
			s.open(on)
		}
		for _, d := range disks {
			if err := b.disk(&s, on, d, order); err != nil {
				return err
			}
		}
	}
	b.opticals(&s, order)
	return nil
}

// disksOn returns the disks of a controller in the order of their units.
func disksOn(vm *inventory.VM, c inventory.Controller) []inventory.Disk {
	var disks []inventory.Disk
	for _, d := range vm.Disks {
		if d.Controller == c.Key {
			disks = append(disks, d)
		}
	}
	slices.SortStableFunc(disks, func(a, b inventory.Disk) int { return cmp.Compare(a.Unit, b.Unit) })
	return disks
}

func (b *domainBuilder) disk(s *seating, on bus, d inventory.Disk, order map[string]uint) error {
	i := slices.IndexFunc(b.def.Images, func(img targets.Image) bool { return img.Key == d.Key })
	if i < 0 {
		return fault.New(fault.Internal, "disk %d has no image", d.Key)
	}
	img := b.def.Images[i]
	x := libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: string(img.Format), Discard: "unmap"},
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: img.Final}},
		Boot:   bootEntry(order, fmt.Sprintf("disk:%d", d.Key)),
	}
	if on.kind == "scsi" {
		// QEMU cuts the serial of other buses at 20 characters.
		x.Serial = strings.ReplaceAll(d.UUID, "-", "")
	}
	if !s.add(on, x) {
		return fault.New(fault.Unsupported, "disk %d is one more than the %s controller has room for", d.Key, on.kind).
			WithHint("move the disk to an LSI Logic SAS or paravirtual controller in vSphere")
	}
	return nil
}

// opticals adds the VM's CD-ROM drives, empty, as far as there is room for them.
func (b *domainBuilder) opticals(s *seating, order map[string]uint) {
	on := ide
	if b.efi() {
		on = sata
	}
	for i := range b.vm.CDROMs {
		x := libvirtxml.DomainDisk{Device: "cdrom", ReadOnly: &libvirtxml.DomainDiskReadOnly{}}
		x.Driver = &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"}
		if i == 0 {
			x.Boot = bootEntry(order, "cdrom")
		}
		s.add(on, x)
	}
}

// bootOrder gives each boot device of the VM its place, from 1. Disks that the VM does
// not list come last: firmware tries them too.
func (b *domainBuilder) bootOrder() map[string]uint {
	devices := slices.Clone(b.vm.BootOrder)
	for _, c := range b.vm.Controllers {
		for _, d := range disksOn(b.vm, c) {
			devices = append(devices, fmt.Sprintf("disk:%d", d.Key))
		}
	}
	order := map[string]uint{}
	for _, device := range devices {
		if _, listed := order[device]; !listed && device != "floppy" {
			order[device] = uint(len(order) + 1)
		}
	}
	return order
}

func bootEntry(order map[string]uint, device string) *libvirtxml.DomainDeviceBoot {
	if n, ok := order[device]; ok {
		return &libvirtxml.DomainDeviceBoot{Order: n}
	}
	return nil
}

// A seating hands out places on controllers, and makes the controllers.
type seating struct {
	devices *libvirtxml.DomainDeviceList
	last    map[string]*row // the row being filled, by kind
	names   map[string]int  // devices named so far, by prefix
}

// A row is one controller and how many of its seats are taken.
type row struct {
	bus   bus
	index uint
	taken int
}

// open starts a controller of its own, except where the machine has exactly one.
func (s *seating) open(on bus) {
	if s.last == nil {
		s.last, s.names = map[string]*row{}, map[string]int{}
	}
	next := row{bus: on}
	if r := s.last[on.kind]; r != nil {
		if on == ide || on == sata && r.taken < on.seats {
			return
		}
		next.index = r.index + 1
	}
	s.last[on.kind] = &next
	index := next.index
	s.devices.Controllers = append(s.devices.Controllers, libvirtxml.DomainController{Type: on.kind, Index: &index, Model: on.model})
}

// add seats x, on a further controller of the kind when this one is full. It returns
// false where there can be no further one, which is IDE.
func (s *seating) add(on bus, x libvirtxml.DomainDisk) bool {
	if on == virtioBlk {
		return s.addAlone(x)
	}
	r := s.last[on.kind]
	if r == nil || r.bus != on || r.taken == on.seats {
		s.open(on)
		r = s.last[on.kind]
	}
	if r.taken == on.seats {
		return false
	}
	prefix := "sd"
	if on == ide {
		prefix = "hd"
	}
	x.Target = &libvirtxml.DomainDiskTarget{Bus: on.kind, Dev: prefix + letters(s.names[prefix])}
	x.Address = &libvirtxml.DomainAddress{Drive: r.address()}
	s.names[prefix]++
	r.taken++
	s.devices.Disks = append(s.devices.Disks, x)
	return true
}

// addAlone seats a disk that is a PCI device of its own. libvirt finds it a place, in the order of
// the disks.
func (s *seating) addAlone(x libvirtxml.DomainDisk) bool {
	const prefix = "vd"
	if s.names == nil {
		s.last, s.names = map[string]*row{}, map[string]int{}
	}
	x.Target = &libvirtxml.DomainDiskTarget{Bus: virtioBlk.kind, Dev: prefix + letters(s.names[prefix])}
	s.names[prefix]++
	s.devices.Disks = append(s.devices.Disks, x)
	return s.names[prefix] <= virtioBlk.seats
}

// address is the row's next free seat, in the form each kind of controller wants: IDE
// has two channels of two, the old LSI chip and SATA count units, other SCSI targets.
func (r *row) address() *libvirtxml.DomainAddressDrive {
	controller, channel, scsiTarget, unit := r.index, uint(0), uint(0), uint(0)
	switch n := uint(r.taken); r.bus {
	case ide:
		channel, unit = n/2, n%2
	case sata, lsilogic:
		unit = n
	default:
		scsiTarget = n
	}
	return &libvirtxml.DomainAddressDrive{Controller: &controller, Bus: &channel, Target: &scsiTarget, Unit: &unit}
}

// letters counts a, b … z, aa, ab as Linux names disks.
func letters(n int) string {
	if n < 26 {
		return string(rune('a' + n))
	}
	return letters(n/26-1) + letters(n%26)
}
