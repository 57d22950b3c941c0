package testboot

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// controllerModels maps libvirt's names of SCSI controllers to QEMU's devices.
var controllerModels = map[string]string{
	"vmpvscsi": "pvscsi", "virtio-scsi": "virtio-scsi-pci", "": "lsi53c895a", "auto": "lsi53c895a",
	"lsilogic": "lsi53c895a", "lsisas1068": "mptsas1068", "lsisas1078": "megasas",
}

// addControllers adds the controllers of disks, USB and channels. Others are part of
// the board, or have no device in a trial.
func (m *machine) addControllers() error {
	for _, c := range m.domain.Devices.Controllers {
		index := uintOf(c.Index)
		switch {
		case c.Type == "scsi":
			model, known := controllerModels[c.Model]
			if !known {
				return unsupportedError("SCSI controller %s", c.Model)
			}
			m.addArgs("-device", fmt.Sprintf("%s,id=scsi%d", model, index))
		case c.Type == "sata" && !(index == 0 && m.q35()):
			m.addArgs("-device", fmt.Sprintf("ahci,id=sata%d", index))
		case c.Type == "usb" && c.Model != "none":
			m.addArgs("-device", fmt.Sprintf("qemu-xhci,id=usb%d", index))
		case c.Type == "virtio-serial":
			m.addArgs("-device", fmt.Sprintf("virtio-serial-pci,id=virtio-serial%d", index))
		}
	}
	return nil
}

// q35 reports whether the board has the chipset Q35.
func (m *machine) q35() bool { return strings.Contains(m.domain.OS.Type.Machine, "q35") }

// controllerModel returns libvirt's model of a controller, and whether the domain has
// the controller.
func (m *machine) controllerModel(kind string, index uint) (string, bool) {
	for _, c := range m.domain.Devices.Controllers {
		if c.Type == kind && uintOf(c.Index) == index {
			return c.Model, true
		}
	}
	return "", false
}

// addDisks adds the disks with snapshot=on: QEMU writes changes to an unnamed temporary
// file. Served disks are handled in the same way, so nothing is written to them either.
func (m *machine) addDisks() error {
	for i, d := range m.domain.Devices.Disks {
		if err := m.addDisk(d, fmt.Sprintf("disk%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// addDisk adds one disk. Floppies are omitted, and CD-ROM drives are empty. A source
// other than an absolute path is fault.Unsupported, because QEMU would interpret names
// like nbd:… as URLs.
func (m *machine) addDisk(d libvirtxml.DomainDisk, id string) error {
	if d.Device == "floppy" {
		return nil
	}
	place, err := m.deviceFor(d)
	if err != nil {
		return err
	}
	if d.Device == "cdrom" { // the medium does not belong to the guest
		m.addArgs("-device", strings.NewReplacer("scsi-hd", "scsi-cd", "ide-hd", "ide-cd").Replace(place)+bootIndex(d.Boot))
		return nil
	}
	file, format := sourceOf(d)
	if !filepath.IsAbs(file) { // QEMU takes nbd:… and json:… for more than names of files
		return unsupportedError("disk %s is neither a file nor a block device with an absolute path: %q", id, file)
	}
	// A served disk has no file whose format could be checked.
	if m.opts.Served[file] == nil {
		if err := checkFormat(d, file); err != nil {
			return err
		}
	}
	var image string
	if serve := m.opts.Served[file]; serve != nil {
		image = fmt.Sprintf("driver=raw,file.driver=nbd,file.server.type=fd,file.server.str=%d", m.diskFD())
		// diskFD depends on the number of served disks so far, so it is called before.
		m.served = append(m.served, serve)
	} else if image, err = m.openImage(file, format); err != nil {
		return err
	}
	m.addArgs("-drive", fmt.Sprintf("if=none,id=%s,snapshot=on,%s", id, image))
	if d.Serial != "" {
		place += ",serial=" + escapeCommas(d.Serial)
	}
	m.addArgs("-device", place+",drive="+id+bootIndex(d.Boot))
	return nil
}

// diskFD returns the descriptor in QEMU of the next served disk. The descriptors follow
// those of the cards' pipes. After all disks, it is the descriptor of the agent's
// channel.
func (m *machine) diskFD() int {
	return cardFD + len(m.domain.Devices.Interfaces) + len(m.served)
}

// sourceOf returns the file of a disk, or "" if it has none, and its format. The
// default format is raw.
func sourceOf(d libvirtxml.DomainDisk) (file, format string) {
	format = "raw"
	if d.Driver != nil && d.Driver.Type != "" {
		format = d.Driver.Type
	}
	switch {
	case d.Source == nil:
		return "", format
	case d.Source.File != nil:
		return d.Source.File.File, format
	case d.Source.Block != nil:
		return d.Source.Block.Dev, format
	}
	return "", format
}

// bootIndex returns the option for the boot order, or "".
func bootIndex(b *libvirtxml.DomainDeviceBoot) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf(",bootindex=%d", b.Order)
}

// deviceFor returns the device of a disk with its position on the controller.
func (m *machine) deviceFor(d libvirtxml.DomainDisk) (string, error) {
	if d.Target == nil {
		return "", unsupportedError("a disk without <target>")
	}
	if d.Target.Bus == "virtio" {
		return "virtio-blk-pci", nil
	}
	if d.Address == nil || d.Address.Drive == nil {
		return "", unsupportedError("disk %s has no <address type='drive'>", d.Target.Dev)
	}
	a := d.Address.Drive
	index, bus, target, unit := uintOf(a.Controller), uintOf(a.Bus), uintOf(a.Target), uintOf(a.Unit)
	model, there := m.controllerModel(d.Target.Bus, index)
	switch {
	case d.Target.Bus == "ide" && !m.q35():
		return fmt.Sprintf("ide-hd,bus=ide.%d,unit=%d", bus, unit), nil
	case d.Target.Bus == "sata" && m.q35() && index == 0:
		return fmt.Sprintf("ide-hd,bus=ide.%d", unit), nil
	case d.Target.Bus == "sata" && there:
		return fmt.Sprintf("ide-hd,bus=sata%d.%d", index, unit), nil
	case d.Target.Bus == "scsi" && there && controllerModels[model] == "lsi53c895a": // this controller has no targets: libvirt numbers the units
		return fmt.Sprintf("scsi-hd,bus=scsi%d.0,scsi-id=%d", index, unit), nil
	case d.Target.Bus == "scsi" && there:
		return fmt.Sprintf("scsi-hd,bus=scsi%d.0,channel=%d,scsi-id=%d,lun=%d", index, bus, target, unit), nil
	}
	return "", unsupportedError("disk %s: controller %d of %s", d.Target.Dev, index, d.Target.Bus)
}

// uintOf returns *p, or 0 if p is nil.
func uintOf(p *uint) uint {
	if p == nil {
		return 0
	}
	return *p
}

// cardModels maps libvirt's names of network cards to QEMU's devices.
var cardModels = map[string]string{
	"virtio": "virtio-net-pci", "vmxnet3": "vmxnet3", "e1000": "e1000", "e1000e": "e1000e", "pcnet": "pcnet", "rtl8139": "rtl8139", "igb": "igb",
}

// addCards connects each card to a separate hub, and copies its packets to a pipe. The
// cards have no boot ROM, so only the guest sends packets.
func (m *machine) addCards() error {
	for i, c := range m.domain.Devices.Interfaces {
		model := "virtio"
		if c.Model != nil {
			model = c.Model.Type
		}
		device, known := cardModels[model]
		if !known {
			return unsupportedError("network card %s", model)
		}
		if c.MAC != nil && c.MAC.Address != "" {
			device += ",mac=" + escapeCommas(c.MAC.Address)
		}
		m.addArgs("-netdev", fmt.Sprintf("hubport,id=net%d,hubid=%d", i, i), "-device", fmt.Sprintf("%s,netdev=net%d,romfile=", device, i),
			"-object", fmt.Sprintf("filter-dump,id=heard%d,netdev=net%d,maxlen=%d,file=/proc/self/fd/%d", i, i, frameLen, cardFD+i))
		m.cards++
	}
	return nil
}

// agentID is what QEMU calls the channel of the guest's agent, agentPort what the guest
// finds it by.
const (
	agentID   = "agent"                  // QEMU's name of the channel to the guest agent
	agentPort = "org.qemu.guest_agent.0" // name by which the guest finds the channel
)

// addChannels adds the guest agent's channel if the domain has it, so that the guest
// gets no additional device. Like libvirt, it adds a controller if the domain has none.
func (m *machine) addChannels() error {
	for _, c := range m.domain.Devices.Channels {
		m.agent = m.agent || c.Target != nil && c.Target.VirtIO != nil && c.Target.VirtIO.Name == agentPort
	}
	if !m.agent {
		return nil
	}
	named := func(c libvirtxml.DomainController) bool { return c.Type == "virtio-serial" }
	if !slices.ContainsFunc(m.domain.Devices.Controllers, named) {
		m.addArgs("-device", "virtio-serial-pci,id=virtio-serial0")
	}
	m.addArgs("-chardev", fmt.Sprintf("socket,id=%s,fd=%d", agentID, m.diskFD()),
		"-device", fmt.Sprintf("virtserialport,id=%s,chardev=%s,name=%s", agentID, agentID, agentPort))
	return nil
}

// cardMACs returns the MACs of the network cards in lower case.
func (m *machine) cardMACs() (all []string) {
	for _, c := range m.domain.Devices.Interfaces {
		if c.MAC != nil {
			all = append(all, strings.ToLower(c.MAC.Address))
		}
	}
	return all
}
