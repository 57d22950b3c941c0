package testboot

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// controllerModels are QEMU's devices behind libvirt's names for SCSI controllers.
var controllerModels = map[string]string{
	"vmpvscsi": "pvscsi", "virtio-scsi": "virtio-scsi-pci", "": "lsi53c895a", "auto": "lsi53c895a",
	"lsilogic": "lsi53c895a", "lsisas1068": "mptsas1068", "lsisas1078": "megasas",
}

// controllers are those that disks hang on; others come with the board, or lead to nothing here.
func (m *machine) controllers() error {
	for _, c := range m.domain.Devices.Controllers {
		index := uintOf(c.Index)
		switch {
		case c.Type == "scsi":
			model, known := controllerModels[c.Model]
			if !known {
				return unsupported("SCSI controller %s", c.Model)
			}
			m.add("-device", fmt.Sprintf("%s,id=scsi%d", model, index))
		case c.Type == "sata" && !(index == 0 && m.q35()):
			m.add("-device", fmt.Sprintf("ahci,id=sata%d", index))
		case c.Type == "usb" && c.Model != "none":
			m.add("-device", fmt.Sprintf("qemu-xhci,id=usb%d", index))
		case c.Type == "virtio-serial":
			m.add("-device", fmt.Sprintf("virtio-serial-pci,id=virtio-serial%d", index))
		}
	}
	return nil
}

func (m *machine) q35() bool { return strings.Contains(m.domain.OS.Type.Machine, "q35") }

// controller is the model of the controller that a disk is on.
func (m *machine) controller(kind string, index uint) (string, bool) {
	for _, c := range m.domain.Devices.Controllers {
		if c.Type == kind && uintOf(c.Index) == index {
			return c.Model, true
		}
	}
	return "", false
}

// disks are opened with snapshot=on: what the guest writes goes into a file without a name. So are
// those that are served, and for the same reason nothing is ever written to them.
func (m *machine) disks() error {
	for i, d := range m.domain.Devices.Disks {
		if err := m.disk(d, fmt.Sprintf("disk%d", i)); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) disk(d libvirtxml.DomainDisk, id string) error {
	if d.Device == "floppy" {
		return nil
	}
	place, err := m.place(d)
	if err != nil {
		return err
	}
	if d.Device == "cdrom" { // the medium does not belong to the guest
		m.add("-device", strings.NewReplacer("scsi-hd", "scsi-cd", "ide-hd", "ide-cd").Replace(place)+bootIndex(d.Boot))
		return nil
	}
	file, format := sourceOf(d)
	if !filepath.IsAbs(file) { // QEMU takes nbd:… and json:… for more than names of files
		return unsupported("disk %s is neither a file nor a block device with an absolute path: %q", id, file)
	}
	if m.opts.Served[file] == nil {
		if err := checkFormat(d, file); err != nil {
			return err
		}
	}
	var image string
	if serve := m.opts.Served[file]; serve != nil {
		image = fmt.Sprintf("driver=raw,file.driver=nbd,file.server.type=fd,file.server.str=%d", m.diskFD())
		m.served = append(m.served, serve)
	} else if image, err = m.image(file, format); err != nil {
		return err
	}
	m.add("-drive", fmt.Sprintf("if=none,id=%s,snapshot=on,%s", id, image))
	if d.Serial != "" {
		place += ",serial=" + escape(d.Serial)
	}
	m.add("-device", place+",drive="+id+bootIndex(d.Boot))
	return nil
}

// diskFD is what QEMU inherits for the next disk that is served: behind the cards' pipes. The one
// behind them all is the agent's channel.
func (m *machine) diskFD() int {
	return cardFD + len(m.domain.Devices.Interfaces) + len(m.served)
}

// sourceOf is the file of a disk, or "", and its format.
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

func bootIndex(b *libvirtxml.DomainDeviceBoot) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf(",bootindex=%d", b.Order)
}

// place is a disk's device on its controller.
func (m *machine) place(d libvirtxml.DomainDisk) (string, error) {
	if d.Target == nil {
		return "", unsupported("a disk without <target>")
	}
	if d.Target.Bus == "virtio" {
		return "virtio-blk-pci", nil
	}
	if d.Address == nil || d.Address.Drive == nil {
		return "", unsupported("disk %s has no <address type='drive'>", d.Target.Dev)
	}
	a := d.Address.Drive
	index, bus, target, unit := uintOf(a.Controller), uintOf(a.Bus), uintOf(a.Target), uintOf(a.Unit)
	model, there := m.controller(d.Target.Bus, index)
	switch {
	case d.Target.Bus == "ide" && !m.q35():
		return fmt.Sprintf("ide-hd,bus=ide.%d,unit=%d", bus, unit), nil
	case d.Target.Bus == "sata" && m.q35() && index == 0:
		return fmt.Sprintf("ide-hd,bus=ide.%d", unit), nil
	case d.Target.Bus == "sata" && there:
		return fmt.Sprintf("ide-hd,bus=sata%d.%d", index, unit), nil
	case d.Target.Bus == "scsi" && there && controllerModels[model] == "lsi53c895a": // it supports no targets: libvirt counts units
		return fmt.Sprintf("scsi-hd,bus=scsi%d.0,scsi-id=%d", index, unit), nil
	case d.Target.Bus == "scsi" && there:
		return fmt.Sprintf("scsi-hd,bus=scsi%d.0,channel=%d,scsi-id=%d,lun=%d", index, bus, target, unit), nil
	}
	return "", unsupported("disk %s: controller %d of %s", d.Target.Dev, index, d.Target.Bus)
}

func uintOf(p *uint) uint {
	if p == nil {
		return 0
	}
	return *p
}

// cardModels are QEMU's network cards by libvirt's names.
var cardModels = map[string]string{
	"virtio": "virtio-net-pci", "vmxnet3": "vmxnet3", "e1000": "e1000", "e1000e": "e1000e", "pcnet": "pcnet", "rtl8139": "rtl8139", "igb": "igb",
}

// network connects each card to a separate hub, and copies its packets to a pipe. Without its boot ROM
// a card sends only on behalf of the guest.
func (m *machine) network() error {
	for i, c := range m.domain.Devices.Interfaces {
		model := "virtio"
		if c.Model != nil {
			model = c.Model.Type
		}
		device, known := cardModels[model]
		if !known {
			return unsupported("network card %s", model)
		}
		if c.MAC != nil && c.MAC.Address != "" {
			device += ",mac=" + escape(c.MAC.Address)
		}
		m.add("-netdev", fmt.Sprintf("hubport,id=net%d,hubid=%d", i, i), "-device", fmt.Sprintf("%s,netdev=net%d,romfile=", device, i),
			"-object", fmt.Sprintf("filter-dump,id=heard%d,netdev=net%d,maxlen=%d,file=/proc/self/fd/%d", i, i, frameLen, cardFD+i))
		m.cards++
	}
	return nil
}

// agentID is what QEMU calls the channel of the guest's agent, agentPort what the guest finds it by.
const (
	agentID   = "agent"
	agentPort = "org.qemu.guest_agent.0"
)

// channels adds the guest agent's channel, if the domain has it: the guest gets no device that its
// domain lacks. Its controller is added if the domain names none, as libvirt does.
func (m *machine) channels() error {
	for _, c := range m.domain.Devices.Channels {
		m.agent = m.agent || c.Target != nil && c.Target.VirtIO != nil && c.Target.VirtIO.Name == agentPort
	}
	if !m.agent {
		return nil
	}
	named := func(c libvirtxml.DomainController) bool { return c.Type == "virtio-serial" }
	if !slices.ContainsFunc(m.domain.Devices.Controllers, named) {
		m.add("-device", "virtio-serial-pci,id=virtio-serial0")
	}
	m.add("-chardev", fmt.Sprintf("socket,id=%s,fd=%d", agentID, m.diskFD()),
		"-device", fmt.Sprintf("virtserialport,id=%s,chardev=%s,name=%s", agentID, agentID, agentPort))
	return nil
}

// macs are the cards'.
func (m *machine) macs() (all []string) {
	for _, c := range m.domain.Devices.Interfaces {
		if c.MAC != nil {
			all = append(all, strings.ToLower(c.MAC.Address))
		}
	}
	return all
}
