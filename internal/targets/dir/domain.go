package dir

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
)

// DomainOptions are the choices that the source VM does not make.
type DomainOptions struct {
	// Type is libvirt's: "kvm", or "qemu" for hosts without it. kvm if empty.
	Type string

	// Network is the libvirt network that cards join; "default" if empty. The
	// name of the VMware network stays in the domain's metadata.
	Network string

	// Maps say otherwise for cards of some networks of VMware's, by name: the name of a libvirt
	// network, or bridge:NAME for a bridge of the machine's. They also say what VMs are called.
	Maps namemap.Map

	nvram nvram // what goes with the VM in the variables of its firmware
}

// bridgePrefix tells a bridge from a libvirt network.
const bridgePrefix = "bridge:"

// usualNetwork is the one that libvirt makes itself.
const usualNetwork = "default"

// Joins names what a card joins: a libvirt network, or a bridge.
func (o DomainOptions) Joins(card inventory.NIC) (name string, bridge bool) {
	return strings.CutPrefix(cmp.Or(o.Maps.Network(card.Network).To, o.Network, usualNetwork), bridgePrefix)
}

// network is what a card joins.
func (o DomainOptions) network(card inventory.NIC) *libvirtxml.DomainInterfaceSource {
	name, bridge := o.Joins(card)
	if bridge {
		return &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: name}}
	}
	return &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: name}}
}

// Domain returns the libvirt domain for def, and a warning for each thing that is not
// as it was on VMware. Images are named by their final places.
//
// One thing of VMware's has no counterpart. A disk's NAA identifier is 128 bits and
// libvirt's wwn 64, so names under /dev/disk/by-id change; the serial number stays. Of the
// variables of EFI firmware a Target brings the boot entries (nvram.go); where there are none
// the guest boots from the fallback path \EFI\BOOT\BOOTX64.EFI.
func Domain(def targets.Definition, opts DomainOptions) (string, []inventory.Warning, error) {
	b := &domainBuilder{vm: def.VM, def: def, opts: opts}
	b.opts.Type = cmp.Or(opts.Type, "kvm")
	b.domain.Devices = &libvirtxml.DomainDeviceList{}
	steps := []func() error{b.identity, b.processors, b.firmware, b.storage, b.cards, b.consoles}
	for _, step := range steps {
		if err := step(); err != nil {
			return "", nil, fmt.Errorf("define VM %s: %w", def.VM.Name, err)
		}
	}
	text, err := b.domain.Marshal()
	return text + "\n", b.warnings, err
}

// A domainBuilder collects one domain.
type domainBuilder struct {
	vm       *inventory.VM
	def      targets.Definition
	opts     DomainOptions
	domain   libvirtxml.Domain
	warnings []inventory.Warning
}

func (b *domainBuilder) warn(code, remedy, format string, args ...any) {
	b.warnings = append(b.warnings, inventory.Warning{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (b *domainBuilder) virtio() bool { return b.def.Hardware.OnVirtio() }

func (b *domainBuilder) efi() bool { return b.vm.Firmware == inventory.EFI }

// found is the operating system that detect found, empty where it found none.
func (b *domainBuilder) found() string {
	for _, g := range b.def.Guest {
		if g.OS.ID != "" {
			return g.OS.ID
		}
	}
	return ""
}

// windows reports whether the guest is known to be Windows: from its registry, or else
// from what VMware was told.
func (b *domainBuilder) windows() bool {
	if id := b.found(); id != "" {
		return id == guest.WindowsID
	}
	return strings.HasPrefix(strings.ToLower(b.vm.GuestID), "win")
}

// linux reports whether the guest is known to be Linux: from its os-release, or else
// from what VMware was told.
func (b *domainBuilder) linux() bool {
	if id := b.found(); id != "" {
		return id != guest.WindowsID
	}
	id := strings.ToLower(b.vm.GuestID)
	for _, word := range []string{
		"linux", "debian", "ubuntu", "rhel", "redhat", "centos", "fedora", "sles", "suse", "photon", "coreos",
	} {
		if strings.Contains(id, word) {
			return true
		}
	}
	return false
}

func (b *domainBuilder) identity() error {
	d := &b.domain
	d.Type, d.UUID = b.opts.Type, b.vm.UUID
	d.Name = DomainName(b.opts.Maps.Name(b.vm.Name))
	d.Description = b.vm.Annotation
	metadata, err := sourceMetadata(b.vm)
	d.Metadata = &libvirtxml.DomainMetadata{XML: metadata}
	d.OS = &libvirtxml.DomainOS{
		Type:   &libvirtxml.DomainOSType{Arch: "x86_64", Machine: "pc", Type: "hvm"},
		SMBios: &libvirtxml.DomainSMBios{Mode: "sysinfo"},
	}
	d.SysInfo = []libvirtxml.DomainSysInfo{{SMBIOS: &libvirtxml.DomainSysInfoSMBIOS{
		System: &libvirtxml.DomainSysInfoSystem{Entry: []libvirtxml.DomainSysInfoEntry{
			{Name: "serial", Value: b.vm.Serial()},
		}},
	}}}
	return err
}

// DomainName is what libvirt calls the VM: its own name where libvirt takes it, else the
// folder's.
func DomainName(name string) string {
	for _, r := range name {
		if r == '/' || r < ' ' || r == 0x7f || r == 0xfffd {
			return SafeName(name)
		}
	}
	switch trimmed := strings.TrimSpace(name); trimmed {
	case "", ".", "..": // libvirt makes folders of that name
		return SafeName(trimmed)
	default:
		return trimmed
	}
}

// source is where a domain came from, kept in its metadata.
type source struct {
	XMLName      xml.Name `xml:"urn:decamp:source:1 source"`
	Ref          string   `xml:"ref,attr"`
	InstanceUUID string   `xml:"instanceUuid,attr,omitempty"`
	Host         string   `xml:"host,attr,omitempty"`
	VMX          string   `xml:"vmx,attr,omitempty"`
	Name         string   `xml:"name,attr"`
	Networks     []struct {
		MAC  string `xml:"mac,attr"`
		Name string `xml:"name,attr"`
	} `xml:"network"`
	Tags       []sourceTag       `xml:"tag"`
	Attributes []sourceAttribute `xml:"attribute"`
}

func sourceMetadata(vm *inventory.VM) (string, error) {
	s := source{Ref: string(vm.Ref), InstanceUUID: vm.InstanceUUID, Host: vm.HostName, VMX: vm.VMX.String(), Name: vm.Name}
	s.Tags, s.Attributes = sourceTags(vm)
	for _, n := range vm.NICs {
		s.Networks = append(s.Networks, struct {
			MAC  string `xml:"mac,attr"`
			Name string `xml:"name,attr"`
		}{n.MAC, n.Network})
	}
	text, err := xml.Marshal(s)
	return string(text), err
}

func (b *domainBuilder) processors() error {
	sockets, cores := b.vm.Topology()
	// Without KVM the default is a CPU older than today's distributions accept.
	mode := map[string]string{"kvm": "host-model", "qemu": "maximum"}[b.opts.Type]
	d := &b.domain
	d.Memory = &libvirtxml.DomainMemory{Value: uint(b.vm.MemoryMiB), Unit: "MiB"}
	d.VCPU = &libvirtxml.DomainVCPU{Value: uint(b.vm.CPUs)}
	d.CPU = &libvirtxml.DomainCPU{Mode: mode, Topology: &libvirtxml.DomainCPUTopology{Sockets: sockets, Cores: cores, Threads: 1}}
	d.Features = &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}}
	d.Clock = &libvirtxml.DomainClock{Offset: "utc", Timer: []libvirtxml.DomainTimer{
		{Name: "rtc", TickPolicy: "catchup"}, {Name: "pit", TickPolicy: "delay"}, {Name: "hpet", Present: "no"},
	}}
	if b.windows() {
		d.Clock.Offset = "localtime"
	}
	return nil
}

// firmware asks libvirt to pick OVMF itself: its path differs among distributions.
func (b *domainBuilder) firmware() error {
	if !b.efi() {
		return nil
	}
	o := b.domain.OS
	o.Type.Machine, o.Firmware = "q35", "efi"
	o.FirmwareInfo = &libvirtxml.DomainOSFirmwareInfo{Features: []libvirtxml.DomainOSFirmwareFeature{
		{Enabled: "no", Name: "secure-boot"},
	}}
	if b.vm.SecureBoot {
		o.FirmwareInfo.Features = []libvirtxml.DomainOSFirmwareFeature{
			{Enabled: "yes", Name: "secure-boot"}, {Enabled: "yes", Name: "enrolled-keys"},
		}
	}
	if n := b.opts.nvram; n.file != "" {
		b.carried(n)
	} else {
		b.leftBehind(n.why)
	}
	if b.vm.VTPM {
		b.domain.Devices.TPMs = []libvirtxml.DomainTPM{{Model: "tpm-crb", Backend: &libvirtxml.DomainTPMBackend{
			Emulator: &libvirtxml.DomainTPMBackendEmulator{Version: "2.0"},
		}}}
		b.warn("vtpm", "keep the BitLocker or LUKS recovery key at hand for the first boot",
			"the virtual TPM starts empty: VMware does not give its contents away")
	}
	return nil
}

// staysBehind is the code of the warning that a firmware begins with nothing of the VM's.
const staysBehind = "efi-variables"

// leftBehind says that the firmware begins with nothing of the VM's.
func (b *domainBuilder) leftBehind(why error) {
	reason := ""
	if why != nil {
		reason = fmt.Sprintf(" (%v)", why)
	}
	b.warn(staysBehind, `make sure the guest has \EFI\BOOT\BOOTX64.EFI (grub-install --removable), or choose its loader in the firmware's menu`,
		"the boot entries in the EFI variables stay behind%s: the guest boots from the fallback path", reason)
}

func (b *domainBuilder) consoles() error {
	port := uint(0)
	pty := func() *libvirtxml.DomainChardevSource {
		return &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}
	}
	d := b.domain.Devices
	d.Serials = []libvirtxml.DomainSerial{{Source: pty(), Target: &libvirtxml.DomainSerialTarget{Port: &port}}}
	d.Consoles = []libvirtxml.DomainConsole{{Source: pty(), Target: &libvirtxml.DomainConsoleTarget{Type: "serial", Port: &port}}}
	if b.def.AgentChannel() {
		d.Channels = []libvirtxml.DomainChannel{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{}},
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: "org.qemu.guest_agent.0"}},
		}}
	}
	d.Graphics = []libvirtxml.DomainGraphic{{VNC: &libvirtxml.DomainGraphicVNC{
		Port: -1, AutoPort: "yes", Listeners: []libvirtxml.DomainGraphicListener{
			{Address: &libvirtxml.DomainGraphicListenerAddress{Address: "127.0.0.1"}},
		},
	}}}
	d.Videos = []libvirtxml.DomainVideo{{Model: libvirtxml.DomainVideoModel{Type: "vga"}}}
	d.MemBalloon = &libvirtxml.DomainMemBalloon{Model: "none"}
	return nil
}
