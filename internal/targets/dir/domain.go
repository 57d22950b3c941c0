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

// DomainOptions are choices that do not follow from the source VM.
type DomainOptions struct {
	// Type is the domain type of libvirt: "kvm", or "qemu" for hosts without KVM. Empty means "kvm".
	Type string

	// Network is the libvirt network of the cards. Empty means "default". The metadata of the domain keeps
	// the
	// name of the VMware network.
	Network string

	// Maps assign a network to the cards of some VMware networks: the name of a libvirt network, or
	// bridge:NAME for a bridge of the host. They also contain new names of VMs.
	Maps namemap.Map

	nvram nvram // EFI variables of the VM; the zero value if absent
}

// bridgePrefix marks the name of a bridge in maps; other names are libvirt networks.
const bridgePrefix = "bridge:"

// defaultNetwork is the network that libvirt creates when it is installed.
const defaultNetwork = "default"

// Joins returns the network of a card: the name of a libvirt network, or of a bridge if bridge is true.
func (o DomainOptions) Joins(card inventory.NIC) (name string, bridge bool) {
	return strings.CutPrefix(cmp.Or(o.Maps.Network(card.Network).To, o.Network, defaultNetwork), bridgePrefix)
}

// cardSource returns the source element of a card's interface.
func (o DomainOptions) cardSource(card inventory.NIC) *libvirtxml.DomainInterfaceSource {
	name, bridge := o.Joins(card)
	if bridge {
		return &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: name}}
	}
	return &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: name}}
}

// Domain returns the libvirt domain for def, and a warning for each difference from the source VM.
// Image paths
// are the final ones.
//
// Disks lose their names under /dev/disk/by-id, because a disk's NAA identifier has 128 bits and
// libvirt's wwn
// has 64. The serial number is kept. Of the EFI variables, a Target carries over the boot entries
// (nvram.go).
// Without them the guest boots from the fallback path \\\\EFI\\\\BOOT\\\\BOOTX64.EFI.
func Domain(def targets.Definition, opts DomainOptions) (string, []inventory.Warning, error) {
	b := &domainBuilder{vm: def.VM, def: def, opts: opts}
	b.opts.Type = cmp.Or(opts.Type, "kvm")
	b.domain.Devices = &libvirtxml.DomainDeviceList{}
	steps := []func() error{b.setIdentity, b.setProcessors, b.setFirmware, b.addStorage, b.addCards, b.addConsoles}
	for _, step := range steps {
		if err := step(); err != nil {
			return "", nil, fmt.Errorf("define VM %s: %w", def.VM.Name, err)
		}
	}
	text, err := b.domain.Marshal()
	return text + "\n", b.warnings, err
}

// domainBuilder builds one domain.
type domainBuilder struct {
	vm       *inventory.VM       // def.VM
	def      targets.Definition  // not modified
	opts     DomainOptions       // with Type set
	domain   libvirtxml.Domain   // the result
	warnings []inventory.Warning // differences from the source VM
}

// warn adds a warning. code is a stable identifier, remedy an instruction for the user.
func (b *domainBuilder) warn(code, remedy, format string, args ...any) {
	b.warnings = append(b.warnings, inventory.Warning{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// usesVirtio reports whether the VM gets virtio hardware.
func (b *domainBuilder) usesVirtio() bool { return b.def.Hardware.OnVirtio() }

// isEFI reports whether the VM has EFI firmware.
func (b *domainBuilder) isEFI() bool { return b.vm.Firmware == inventory.EFI }

// detectedOS returns the ID of the operating system that the detect step found, or "".
func (b *domainBuilder) detectedOS() string {
	for _, g := range b.def.Guest {
		if g.OS.ID != "" {
			return g.OS.ID
		}
	}
	return ""
}

// isWindows reports whether the guest is known to be Windows: from its registry, or else from
// the guest ID in vSphere.
func (b *domainBuilder) isWindows() bool {
	if id := b.detectedOS(); id != "" {
		return id == guest.WindowsID
	}
	return strings.HasPrefix(strings.ToLower(b.vm.GuestID), "win")
}

// isLinux reports whether the guest is known to be Linux: from its os-release file, or else from
// the guest ID in vSphere.
func (b *domainBuilder) isLinux() bool {
	if id := b.detectedOS(); id != "" {
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

// setIdentity sets the name, the UUID and the SMBIOS serial number, and the metadata about the source
// VM.
func (b *domainBuilder) setIdentity() error {
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

// DomainName returns the name of the domain: the VM's name if libvirt accepts it, else SafeName of it.
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

// source is the element in the domain's metadata that describes the source VM.
type source struct {
	XMLName      xml.Name `xml:"urn:decamp:source:1 source"`
	Ref          string   `xml:"ref,attr"`                    // managed object reference, such as "vm-42"
	InstanceUUID string   `xml:"instanceUuid,attr,omitempty"` // UUID that vCenter assigned
	Host         string   `xml:"host,attr,omitempty"`         // ESXi host
	VMX          string   `xml:"vmx,attr,omitempty"`          // path of the VMX file with its datastore
	Name         string   `xml:"name,attr"`                   // name in vSphere
	// VMware network of each card
	Networks []struct {
		MAC  string `xml:"mac,attr"`
		Name string `xml:"name,attr"`
	} `xml:"network"`
	Tags       []sourceTag       `xml:"tag"`       // vSphere tags
	Attributes []sourceAttribute `xml:"attribute"` // custom attributes, sorted by name
}

// sourceMetadata returns the metadata element for vm as XML.
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

// setProcessors sets CPUs, memory and clock. With KVM the CPU model is host-model, else maximum: QEMU's
// default CPU is
// too old for current distributions. Windows expects the hardware clock in local time.
func (b *domainBuilder) setProcessors() error {
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
	if b.isWindows() {
		d.Clock.Offset = "localtime"
	}
	return nil
}

// setFirmware sets the EFI firmware; BIOS is libvirt's default. libvirt selects the OVMF file itself,
// because its
// path differs among distributions. A virtual TPM starts empty.
func (b *domainBuilder) setFirmware() error {
	if !b.isEFI() {
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
		b.useNVRAM(n)
	} else {
		b.warnDefaultVariables(n.why)
	}
	if b.vm.VTPM {
		b.domain.Devices.TPMs = []libvirtxml.DomainTPM{{Model: "tpm-crb", Backend: &libvirtxml.DomainTPMBackend{
			Emulator: &libvirtxml.DomainTPMBackendEmulator{Version: "2.0"},
		}}}
		b.warn("vtpm", "keep the BitLocker or LUKS recovery key at hand for the first boot",
			"the virtual TPM starts empty: VMware does not export its content")
	}
	return nil
}

// defaultVariablesCode is the code of the warning that the VM starts with default EFI variables.
const defaultVariablesCode = "efi-variables"

// warnDefaultVariables adds the warning that the source VM's EFI boot entries are not carried over. why
// may be nil.
func (b *domainBuilder) warnDefaultVariables(why error) {
	reason := ""
	if why != nil {
		reason = fmt.Sprintf(" (%v)", why)
	}
	b.warn(defaultVariablesCode, `make sure the guest has \EFI\BOOT\BOOTX64.EFI (grub-install --removable), or choose its loader in the firmware's menu`,
		"the boot entries in the EFI variables are not migrated%s: the guest boots from the fallback path", reason)
}

// addConsoles adds a serial console, a VNC display on 127.0.0.1, and the guest agent's channel if
// needed.
func (b *domainBuilder) addConsoles() error {
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
