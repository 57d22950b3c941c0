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

// checkHardware returns fault.Unsupported if QEMU has no counterpart of a disk's controller. It is
// called before the copy.
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

// controllerOf returns the controller of d, or the zero Controller if vm does not list it.
func controllerOf(vm *inventory.VM, d inventory.Disk) inventory.Controller {
	for _, c := range vm.Controllers {
		if c.Key == d.Controller {
			return c
		}
	}
	return inventory.Controller{}
}

// bus is a controller model of libvirt.
type bus struct {
	kind  string // type attribute of <controller>, and bus attribute of <target>
	model string // model attribute of <controller>; empty if the kind has only one model
	slots int    // maximum number of disks on one controller in QEMU
}

var (
	pvscsi   = bus{"scsi", "vmpvscsi", 64}    // VMware's paravirtual controller, in QEMU
	virtio   = bus{"scsi", "virtio-scsi", 64} // needs a driver in the guest
	lsilogic = bus{"scsi", "lsilogic", 7}     // LSI 53C895A
	lsisas   = bus{"scsi", "lsisas1068", 8}   // LSI SAS1068
	sata     = bus{"sata", "", 6}             // AHCI with six ports
	ide      = bus{"ide", "", 4}              // two channels of two drives

	// virtioBlk has no controllers: each disk is a PCI device, and a machine has about 20 PCI slots.
	virtioBlk = bus{"virtio", "", 20}
)

// addStorage adds all disks and CD-ROM drives, in the order of VMware's controllers.
func (b *domainBuilder) addStorage() error {
	if err := checkHardware(b.vm); err != nil {
		return err
	}
	s := slotAllocator{devices: b.domain.Devices}
	order := b.bootOrder()
	for _, c := range b.vm.Controllers {
		disks := disksOn(b.vm, c)
		if len(disks) == 0 {
			continue
		}
		on := b.chooseBus(c)
		if on != virtioBlk {
			s.addController(on)
		}
		for _, d := range disks {
			if err := b.addDisk(&s, on, d, order); err != nil {
				return err
			}
		}
	}
	b.addCDROMs(&s, order)
	return nil
}

// disksOn returns the disks of a controller in the order of their unit numbers.
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

// addDisk adds a disk on the given bus. It returns fault.Unsupported if the bus is full.
func (b *domainBuilder) addDisk(s *slotAllocator, on bus, d inventory.Disk, order map[string]uint) error {
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
	if !s.addDrive(on, x) {
		return fault.New(fault.Unsupported, "disk %d does not fit on the %s controller", d.Key, on.kind).
			WithHint("move the disk to an LSI Logic SAS or paravirtual controller in vSphere")
	}
	return nil
}

// addCDROMs adds the VM's CD-ROM drives without media. Drives for which there is no slot are omitted.
func (b *domainBuilder) addCDROMs(s *slotAllocator, order map[string]uint) {
	on := ide
	if b.isEFI() {
		on = sata
	}
	for i := range b.vm.CDROMs {
		x := libvirtxml.DomainDisk{Device: "cdrom", ReadOnly: &libvirtxml.DomainDiskReadOnly{}}
		x.Driver = &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"}
		if i == 0 {
			x.Boot = bootEntry(order, "cdrom")
		}
		s.addDrive(on, x)
	}
}

// bootOrder returns the position of each boot device, from 1. Disks that are not in the VM's boot order
// come
// last, because VMware's firmware tries them, too.
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

// bootEntry returns the boot element of a device, or nil if the device is not in the order.
func bootEntry(order map[string]uint, device string) *libvirtxml.DomainDeviceBoot {
	if n, ok := order[device]; ok {
		return &libvirtxml.DomainDeviceBoot{Order: n}
	}
	return nil
}

// slotAllocator assigns controllers and unit numbers to drives, and creates the controllers.
type slotAllocator struct {
	devices *libvirtxml.DomainDeviceList // receives controllers and disks
	current map[string]*controller       // controller with free slots, by kind of bus
	names   map[string]int               // number of device names assigned, by prefix such as "sd"
}

// controller is a controller of the domain.
type controller struct {
	bus   bus  // its model
	index uint // index attribute, from 0 for each kind
	used  int  // number of disks on it
}

// addController adds a controller and makes it current. It does nothing for a second IDE controller, or
// if the
// current SATA controller has free slots, because a machine has exactly one.
func (s *slotAllocator) addController(on bus) {
	if s.current == nil {
		s.current, s.names = map[string]*controller{}, map[string]int{}
	}
	next := controller{bus: on}
	if r := s.current[on.kind]; r != nil {
		if on == ide || on == sata && r.used < on.slots {
			return
		}
		next.index = r.index + 1
	}
	s.current[on.kind] = &next
	index := next.index
	s.devices.Controllers = append(s.devices.Controllers, libvirtxml.DomainController{Type: on.kind, Index: &index, Model: on.model})
}

// addDrive assigns a slot to x and adds it. If the current controller is full, it adds another
// controller.
// It returns false if that is impossible, as with IDE.
func (s *slotAllocator) addDrive(on bus, x libvirtxml.DomainDisk) bool {
	if on == virtioBlk {
		return s.addVirtioBlk(x)
	}
	r := s.current[on.kind]
	if r == nil || r.bus != on || r.used == on.slots {
		s.addController(on)
		r = s.current[on.kind]
	}
	if r.used == on.slots {
		return false
	}
	prefix := "sd"
	if on == ide {
		prefix = "hd"
	}
	x.Target = &libvirtxml.DomainDiskTarget{Bus: on.kind, Dev: prefix + diskLetters(s.names[prefix])}
	x.Address = &libvirtxml.DomainAddress{Drive: r.nextAddress()}
	s.names[prefix]++
	r.used++
	s.devices.Disks = append(s.devices.Disks, x)
	return true
}

// addVirtioBlk adds a disk that is a PCI device. libvirt assigns its PCI slot. It returns false if
// there are
// more disks than slots.
func (s *slotAllocator) addVirtioBlk(x libvirtxml.DomainDisk) bool {
	const prefix = "vd"
	if s.names == nil {
		s.current, s.names = map[string]*controller{}, map[string]int{}
	}
	x.Target = &libvirtxml.DomainDiskTarget{Bus: virtioBlk.kind, Dev: prefix + diskLetters(s.names[prefix])}
	s.names[prefix]++
	s.devices.Disks = append(s.devices.Disks, x)
	return s.names[prefix] <= virtioBlk.slots
}

// nextAddress returns the address of the controller's next free slot. IDE has two channels of two
// units,
// LSI 53C895A and SATA count units, and other SCSI controllers count targets.
func (r *controller) nextAddress() *libvirtxml.DomainAddressDrive {
	controller, channel, scsiTarget, unit := r.index, uint(0), uint(0), uint(0)
	switch n := uint(r.used); r.bus {
	case ide:
		channel, unit = n/2, n%2
	case sata, lsilogic:
		unit = n
	default:
		scsiTarget = n
	}
	return &libvirtxml.DomainAddressDrive{Controller: &controller, Bus: &channel, Target: &scsiTarget, Unit: &unit}
}

// diskLetters returns the suffix of Linux's name for the n-th disk: a, b … z, aa, ab.
func diskLetters(n int) string {
	if n < 26 {
		return string(rune('a' + n))
	}
	return diskLetters(n/26-1) + diskLetters(n%26)
}
