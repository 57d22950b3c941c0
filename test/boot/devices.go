package boot

import (
	"fmt"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// scsiModels maps libvirt's names of SCSI controllers to QEMU devices.
func scsiModels() map[string]string {
	return map[string]string{
		"vmpvscsi":    "pvscsi",
		"virtio-scsi": "virtio-scsi-pci",
		"lsilogic":    "lsi53c895a",
		"lsisas1068":  "mptsas1068",
	}
}

// addControllers adds all disk controllers.
func (c *qemuCommand) addControllers(d *libvirtxml.Domain) error {
	for _, ctl := range d.Devices.Controllers {
		if err := c.addController(d, ctl); err != nil {
			return err
		}
	}
	return nil
}

// addController adds a controller, unless it is part of the machine type. "usb" with model "none" adds
// nothing.
func (c *qemuCommand) addController(d *libvirtxml.Domain, ctl libvirtxml.DomainController) error {
	if ctl.Index == nil {
		return fmt.Errorf("%s controller without an index is not understood", ctl.Type)
	}
	builtIn := *ctl.Index == 0 && ctl.Model == "" // part of the machine type
	switch model, known := scsiModels()[ctl.Model]; {
	case ctl.Type == "scsi" && known:
		c.addArgs("-device", fmt.Sprintf("%s,id=scsi%d", model, *ctl.Index))
	case ctl.Type == "sata" && ctl.Model == "" && !hasBuiltInSATA(d, ctl):
		c.addArgs("-device", fmt.Sprintf("ahci,id=sata%d", *ctl.Index))
	case ctl.Type == "sata" && builtIn: // the AHCI controller of q35
	case ctl.Type == "ide" && builtIn && d.OS.Type.Machine == "pc": // the IDE controller of pc
	case ctl.Type == "usb" && ctl.Model == "none": // no USB
	default:
		return fmt.Errorf("%s controller %d of model %q is not understood on %s", ctl.Type, *ctl.Index, ctl.Model, d.OS.Type.Machine)
	}
	return nil
}

// hasBuiltInSATA reports whether ctl is the AHCI controller that every q35 has.
func hasBuiltInSATA(d *libvirtxml.Domain, ctl libvirtxml.DomainController) bool {
	return d.OS.Type.Machine == "q35" && *ctl.Index == 0
}

// addDisks adds all disks and CD-ROM drives.
func (c *qemuCommand) addDisks(d *libvirtxml.Domain) error {
	for i, disk := range d.Devices.Disks {
		if err := c.addDisk(d, disk, fmt.Sprintf("drive%d", i)); err != nil {
			return fmt.Errorf("disk %d: %w", i, err)
		}
	}
	return nil
}

// addDisk adds a disk with snapshot=on, so that the boot does not change the image, or an empty CD-ROM
// drive.
func (c *qemuCommand) addDisk(d *libvirtxml.Domain, disk libvirtxml.DomainDisk, id string) error {
	place, err := diskDevice(d, disk)
	if err != nil {
		return err
	}
	file := sourceFile(disk)
	if disk.Device == "cdrom" && file == "" { // a drive without a medium
		c.addArgs("-device", strings.Replace(place, "-hd", "-cd", 1)+bootIndex(disk.Boot))
		return nil
	}
	if disk.Device != "disk" || file == "" || disk.Driver == nil {
		return fmt.Errorf("only file images with a <driver>, and empty CD-ROM drives, are understood")
	}
	if disk.Driver.Type != "raw" && disk.Driver.Type != "qcow2" {
		return fmt.Errorf("image format %q is not understood", disk.Driver.Type)
	}
	c.addArgs("-drive", fmt.Sprintf("if=none,id=%s,format=%s,snapshot=on,file=%s", id, disk.Driver.Type, escapeCommas(file)))
	place += ",drive=" + id + bootIndex(disk.Boot)
	if disk.Serial != "" { // shown in /dev/disk/by-id of the guest
		place += ",serial=" + escapeCommas(disk.Serial)
	}
	c.addArgs("-device", place)
	return nil
}

// sourceFile returns the image of a disk; empty if it has none.
func sourceFile(disk libvirtxml.DomainDisk) string {
	if disk.Source == nil || disk.Source.File == nil {
		return ""
	}
	return disk.Source.File.File
}

// bootIndex returns the option for a boot order; empty if b is nil.
func bootIndex(b *libvirtxml.DomainDeviceBoot) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf(",bootindex=%d", b.Order)
}

// diskDevice returns the value of -device for a disk, with its position on a controller.
func diskDevice(d *libvirtxml.Domain, disk libvirtxml.DomainDisk) (string, error) {
	if disk.Target == nil {
		return "", fmt.Errorf("no <target>")
	}
	if disk.Target.Bus == "virtio" { // a PCI device without a controller
		return "virtio-blk-pci", nil
	}
	if disk.Address == nil || disk.Address.Drive == nil {
		return "", fmt.Errorf("no drive <address>")
	}
	a := disk.Address.Drive
	index, bus, target, unit := valueOrZero(a.Controller), valueOrZero(a.Bus), valueOrZero(a.Target), valueOrZero(a.Unit)
	model, err := controllerModel(d, disk.Target.Bus, index)
	if err != nil {
		return "", err
	}
	switch disk.Target.Bus {
	case "ide":
		return fmt.Sprintf("ide-hd,bus=ide.%d,unit=%d", bus, unit), nil
	case "sata":
		if d.OS.Type.Machine == "q35" && index == 0 {
			return fmt.Sprintf("ide-hd,bus=ide.%d", unit), nil
		}
		return fmt.Sprintf("ide-hd,bus=sata%d.%d", index, unit), nil
	case "scsi":
		if model == "lsilogic" { // libvirt has no targets for lsilogic; units are its SCSI ids
			target, unit = unit, 0
		}
		return fmt.Sprintf("scsi-hd,bus=scsi%d.0,channel=%d,scsi-id=%d,lun=%d", index, bus, target, unit), nil
	}
	return "", fmt.Errorf("bus %q is not understood", disk.Target.Bus)
}

// controllerModel returns the model of the controller that a disk's address names. A missing controller
// is an error.
func controllerModel(d *libvirtxml.Domain, bus string, index uint) (string, error) {
	for _, ctl := range d.Devices.Controllers {
		if ctl.Type == bus && ctl.Index != nil && *ctl.Index == index {
			return ctl.Model, nil
		}
	}
	return "", fmt.Errorf("no %s controller %d", bus, index)
}

// valueOrZero returns *p, or 0 if p is nil.
func valueOrZero(p *uint) uint {
	if p == nil {
		return 0
	}
	return *p
}

// addNetworkCards connects each network card to its own network without outside connection.
func (c *qemuCommand) addNetworkCards(d *libvirtxml.Domain) error {
	models := map[string]string{"virtio": "virtio-net-pci", "vmxnet3": "vmxnet3", "e1000": "e1000", "e1000e": "e1000e", "pcnet": "pcnet"}
	for i, card := range d.Devices.Interfaces {
		if card.Model == nil || card.MAC == nil {
			return fmt.Errorf("interface %d: no <model> or no <mac>", i)
		}
		device, ok := models[card.Model.Type]
		if !ok {
			return fmt.Errorf("interface %d: model %q is not understood", i, card.Model.Type)
		}
		c.addArgs("-netdev", fmt.Sprintf("user,id=net%d,restrict=on", i),
			"-device", fmt.Sprintf("%s,netdev=net%d,mac=%s%s", device, i, card.MAC.Address, bootIndex(card.Boot)))
	}
	return nil
}
