package testboot

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/confine"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
)

// A machine is a QEMU command line that is being made of a domain.
type machine struct {
	domain *libvirtxml.Domain
	opts   Options
	dir    string            // folder for the duration of the trial; QEMU cannot open it
	sets   []confine.FileSet // files that QEMU inherits
	accel  Accel
	args   []string
	cards  int // cards whose packets are copied to a pipe each
	served []func(io.ReadWriter)
	agent  bool     // the VM has the channel of the guest's agent
	less   []string // how it differs from the domain
}

func newMachine(d *libvirtxml.Domain, dir string, accel Accel, o Options) (*machine, error) {
	m := &machine{domain: d, opts: o, dir: dir, accel: accel}
	if d.OS == nil || d.OS.Type == nil || d.Devices == nil || d.Memory == nil {
		return nil, unsupported("the domain has no <os> with a <type>, no <memory> or no <devices>")
	}
	m.add("-nodefaults", "-no-user-config", "-display", "none", "-name", "trial", "-no-shutdown")
	for _, part := range []func() error{m.board, m.processors, m.memory, m.identity, m.firmware, m.controllers, m.disks, m.network, m.consoles, m.channels} {
		if err := part(); err != nil {
			m.closeSets()
			return nil, err
		}
	}
	m.leaveOut()
	return m, nil
}

func unsupported(format string, args ...any) error {
	return fault.New(fault.Unsupported, format, args...).WithHint("start it where it is defined, and look at its console: virsh start --console NAME")
}

func (m *machine) add(args ...string) { m.args = append(m.args, args...) }

func (m *machine) lacks(format string, args ...any) {
	m.less = append(m.less, fmt.Sprintf(format, args...))
}

// board is the chipset. Names like pc-q35-6.2 are a QEMU's that may not be this one.
func (m *machine) board() error {
	t := m.domain.OS.Type
	board := "pc"
	switch {
	case t.Arch != "" && t.Arch != "x86_64":
		return unsupported("the domain is for %s", t.Arch)
	case strings.Contains(t.Machine, "q35"):
		board = "q35"
	case t.Machine != "" && t.Machine != "pc" && !strings.HasPrefix(t.Machine, "pc-i440fx"):
		return unsupported("machine type %s", t.Machine)
	}
	board += ",accel=" + string(m.accel)
	if m.secureBoot() {
		board += ",smm=on"
	}
	m.add("-machine", board)
	return nil
}

// processors uses at most the domain's processors, in one socket: a trial tests whether the guest
// boots, not its speed.
func (m *machine) processors() error {
	n := 1
	if m.domain.VCPU != nil {
		n = max(1, int(m.domain.VCPU.Value))
	}
	if n > m.opts.CPUs {
		m.lacks("%d of %d processors", m.opts.CPUs, n)
		n = m.opts.CPUs
	}
	model := "max"
	if m.accel == KVM {
		model = "host"
	}
	m.add("-cpu", model, "-smp", fmt.Sprint(n))
	return nil
}

// units of libvirt's <memory>, as powers of two.
var units = map[string]int{"": 10, "b": 0, "bytes": 0, "k": 10, "KiB": 10, "M": 20, "MiB": 20, "G": 30, "GiB": 30, "T": 40, "TiB": 40}

func (m *machine) memory() error {
	shift, known := units[m.domain.Memory.Unit]
	if !known || m.domain.Memory.Value == 0 || m.domain.Memory.Value > 1<<62>>shift {
		return unsupported("memory of %d %s", m.domain.Memory.Value, m.domain.Memory.Unit)
	}
	size := int64(m.domain.Memory.Value) << shift
	if size > m.opts.Memory {
		m.lacks("%d of %d MiB of memory", m.opts.Memory>>20, size>>20)
		size = m.opts.Memory
	}
	m.add("-m", fmt.Sprintf("size=%dM", max(1, size>>20)))
	return nil
}

// identity is what the guest reads from SMBIOS, to which licences and names are bound.
func (m *machine) identity() error {
	if m.domain.UUID != "" {
		m.add("-uuid", m.domain.UUID)
	}
	for _, info := range m.domain.SysInfo {
		if info.SMBIOS == nil || info.SMBIOS.System == nil {
			continue
		}
		words := []string{"type=1"}
		for _, e := range info.SMBIOS.System.Entry {
			if e.Name == "serial" || e.Name == "manufacturer" || e.Name == "product" || e.Name == "version" || e.Name == "sku" || e.Name == "family" {
				words = append(words, e.Name+"="+escape(e.Value))
			}
		}
		m.add("-smbios", strings.Join(words, ","))
	}
	if c := m.domain.Clock; c != nil && c.Offset == "localtime" {
		m.add("-rtc", "base=localtime")
	}
	return nil
}

// escape doubles the commas of a value inside QEMU's options.
func escape(s string) string { return strings.ReplaceAll(s, ",", ",,") }

func (m *machine) efi() bool {
	o := m.domain.OS
	return o.Firmware == "efi" || o.Loader != nil && o.Loader.Type == "pflash"
}

func (m *machine) secureBoot() bool {
	if o := m.domain.OS; o.FirmwareInfo != nil {
		for _, f := range o.FirmwareInfo.Features {
			if f.Name == "secure-boot" && f.Enabled == "yes" {
				return true
			}
		}
	}
	return m.domain.OS.Loader != nil && m.domain.OS.Loader.Secure == "yes"
}

// firmware is OVMF: the one that the domain names, or else chosen as libvirt chooses it. Its variables are a
// copy of the template that the domain names, or of the firmware's own.
func (m *machine) firmware() error {
	if !m.efi() {
		return nil
	}
	f, err := m.ovmf()
	if err != nil {
		return err
	}
	vars, err := os.ReadFile(f.Vars)
	if err != nil {
		return err
	}
	nvram := filepath.Join(m.dir, "vars.fd")
	if err := os.WriteFile(nvram, vars, 0o600); err != nil {
		return err
	}
	code, err := m.file(f.Code, os.O_RDONLY)
	if err != nil {
		return err
	}
	if nvram, err = m.file(nvram, os.O_RDONLY, os.O_RDWR); err != nil {
		return err
	}
	m.add("-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+code, "-drive", "if=pflash,unit=1,format=raw,file="+nvram)
	if m.secureBoot() {
		m.add("-global", "driver=cfi.pflash01,property=secure,value=on")
	}
	return nil
}

// ovmf returns the pair of files. A template belongs to the code of the same descriptor only. A domain
// from another machine may name files that do not exist or are unreadable here.
func (m *machine) ovmf() (efi.Firmware, error) {
	o := m.domain.OS
	if o.Loader == nil || o.NVRam == nil || o.NVRam.Template == "" {
		return efi.FindFirmware(m.opts.Root, m.secureBoot())
	}
	for _, file := range []string{o.Loader.Path, o.NVRam.Template} {
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() || strings.HasSuffix(file, ".qcow2") {
			m.lacks("fresh variables and the firmware of this machine, as %s is not of use here", file)
			return efi.FindFirmware(m.opts.Root, m.secureBoot())
		}
	}
	return efi.Firmware{Code: o.Loader.Path, Vars: o.NVRam.Template}, nil
}

// consoles are the serial port and the display, which every trial has: they say what happens. The
// serial port ends in this process's standard output, QEMU's monitor in a socket that it inherits.
func (m *machine) consoles() error {
	m.add("-chardev", "stdio,id=serial,signal=off", "-serial", "chardev:serial")
	m.add("-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", monitorFD), "-mon", "chardev=monitor,mode=control")
	display := "VGA"
	for _, v := range m.domain.Devices.Videos {
		if known := map[string]string{"vmvga": "vmware-svga", "qxl": "VGA", "virtio": "virtio-vga", "cirrus": "cirrus-vga"}[v.Model.Type]; known != "" {
			display = known
		}
	}
	m.add("-device", display)
	return nil
}

// leaveOut lists the devices that the trial leaves out.
func (m *machine) leaveOut() {
	d := m.domain.Devices
	for what, n := range map[string]int{
		"host devices": len(d.Hostdevs), "file systems": len(d.Filesystems), "TPM": len(d.TPMs), "redirected USB devices": len(d.RedirDevs),
		"smart cards": len(d.Smartcards), "shared memory": len(d.Shmems),
	} {
		if n > 0 {
			m.lacks("no %s", what)
		}
	}
}
