package testboot

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/confine"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
)

// A machine is the QEMU command line for a domain.
type machine struct {
	domain *libvirtxml.Domain // definition of the VM
	opts   Options            // options with defaults applied
	dir    string             // folder for the duration of the trial; QEMU cannot open it
	sets   []confine.FileSet  // files that QEMU inherits
	accel  Accel              // KVM or TCG
	args   []string           // arguments so far
	cards  int                // number of cards, each with a pipe for its packets
	served []func(net.Conn)   // functions that serve the disks without a file
	agent  bool               // the domain has the channel of the guest agent
	less   []string           // differences from the domain, for the report
}

// newMachine builds the command line for a domain, and opens its files. The caller must
// call closeSets. A domain that QEMU cannot run in this way is fault.Unsupported.
func newMachine(d *libvirtxml.Domain, dir string, accel Accel, o Options) (*machine, error) {
	m := &machine{domain: d, opts: o, dir: dir, accel: accel}
	if d.OS == nil || d.OS.Type == nil || d.Devices == nil || d.Memory == nil {
		return nil, unsupportedError("the domain has no <os> with a <type>, no <memory> or no <devices>")
	}
	m.addArgs("-nodefaults", "-no-user-config", "-display", "none", "-name", "trial", "-no-shutdown")
	for _, part := range []func() error{m.addBoard, m.addProcessors, m.addMemory, m.addIdentity, m.addFirmware, m.addControllers, m.addDisks, m.addCards, m.addConsoles, m.addChannels} {
		if err := part(); err != nil {
			m.closeSets()
			return nil, err
		}
	}
	m.leaveOut()
	return m, nil
}

// unsupportedError returns fault.Unsupported with the remedy for all unsupported
// domains.
func unsupportedError(format string, args ...any) error {
	return fault.New(fault.Unsupported, format, args...).WithHint("start the VM on its host and watch its console: virsh start --console NAME")
}

// addArgs appends arguments.
func (m *machine) addArgs(args ...string) { m.args = append(m.args, args...) }

// noteDifference records a difference from the domain.
func (m *machine) noteDifference(format string, args ...any) {
	m.less = append(m.less, fmt.Sprintf(format, args...))
}

// addBoard adds the chipset. It does not use versioned names such as pc-q35-6.2, which
// this QEMU may not have.
func (m *machine) addBoard() error {
	t := m.domain.OS.Type
	board := "pc"
	switch {
	case t.Arch != "" && t.Arch != "x86_64":
		return unsupportedError("the domain is for the processor %s", t.Arch)
	case strings.Contains(t.Machine, "q35"):
		board = "q35"
	case t.Machine != "" && t.Machine != "pc" && !strings.HasPrefix(t.Machine, "pc-i440fx"):
		return unsupportedError("machine type %s", t.Machine)
	}
	board += ",accel=" + string(m.accel)
	if m.secureBoot() {
		board += ",smm=on"
	}
	m.addArgs("-machine", board)
	return nil
}

// addProcessors adds at most the domain's processors, in one socket: a trial tests
// whether the guest boots, not its speed. The difference is part of the report.
func (m *machine) addProcessors() error {
	// libvirt's default is one processor.
	n := 1
	if m.domain.VCPU != nil {
		n = max(1, int(m.domain.VCPU.Value))
	}
	if n > m.opts.CPUs {
		m.noteDifference("%d of %d processors", m.opts.CPUs, n)
		n = m.opts.CPUs
	}
	// KVM can only run the host's processor model.
	model := "max"
	if m.accel == KVM {
		model = "host"
	}
	m.addArgs("-cpu", model, "-smp", fmt.Sprint(n))
	return nil
}

// units maps the units of libvirt's <memory> to powers of two.
var units = map[string]int{"": 10, "b": 0, "bytes": 0, "k": 10, "KiB": 10, "M": 20, "MiB": 20, "G": 30, "GiB": 30, "T": 40, "TiB": 40}

// addMemory adds the memory of the domain, at most Options.Memory.
func (m *machine) addMemory() error {
	shift, known := units[m.domain.Memory.Unit]
	if !known || m.domain.Memory.Value == 0 || m.domain.Memory.Value > 1<<62>>shift {
		return unsupportedError("memory of %d %s", m.domain.Memory.Value, m.domain.Memory.Unit)
	}
	size := int64(m.domain.Memory.Value) << shift
	if size > m.opts.Memory {
		m.noteDifference("%d of %d MiB of memory", m.opts.Memory>>20, size>>20)
		size = m.opts.Memory
	}
	m.addArgs("-m", fmt.Sprintf("size=%dM", max(1, size>>20)))
	return nil
}

// addIdentity adds the UUID, the SMBIOS strings and the clock offset. Licences depend
// on them.
func (m *machine) addIdentity() error {
	if m.domain.UUID != "" {
		m.addArgs("-uuid", m.domain.UUID)
	}
	for _, info := range m.domain.SysInfo {
		if info.SMBIOS == nil || info.SMBIOS.System == nil {
			continue
		}
		words := []string{"type=1"}
		for _, e := range info.SMBIOS.System.Entry {
			if e.Name == "serial" || e.Name == "manufacturer" || e.Name == "product" || e.Name == "version" || e.Name == "sku" || e.Name == "family" {
				words = append(words, e.Name+"="+escapeCommas(e.Value))
			}
		}
		m.addArgs("-smbios", strings.Join(words, ","))
	}
	if c := m.domain.Clock; c != nil && c.Offset == "localtime" {
		m.addArgs("-rtc", "base=localtime")
	}
	return nil
}

// escapeCommas doubles the commas of a value in QEMU's options.
func escapeCommas(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// usesEFI reports whether the domain has EFI firmware.
func (m *machine) usesEFI() bool {
	o := m.domain.OS
	return o.Firmware == "efi" || o.Loader != nil && o.Loader.Type == "pflash"
}

// secureBoot reports whether the domain enables Secure Boot.
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

// addFirmware adds OVMF for EFI domains: the files that the domain names, or those that
// libvirt would choose. The variables are a copy of the template, so that the trial
// does not change them.
func (m *machine) addFirmware() error {
	if !m.usesEFI() {
		return nil
	}
	f, err := m.findOVMF()
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
	code, err := m.openFile(f.Code, os.O_RDONLY)
	if err != nil {
		return err
	}
	if nvram, err = m.openFile(nvram, os.O_RDONLY, os.O_RDWR); err != nil {
		return err
	}
	m.addArgs("-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+code, "-drive", "if=pflash,unit=1,format=raw,file="+nvram)
	if m.secureBoot() {
		m.addArgs("-global", "driver=cfi.pflash01,property=secure,value=on")
	}
	return nil
}

// findOVMF returns the pair of files. A template is valid only for the code of its
// descriptor. A domain from another machine may name files that do not exist or are
// unreadable here; the firmware of this machine replaces them.
func (m *machine) findOVMF() (efi.Firmware, error) {
	o := m.domain.OS
	if o.Loader == nil || o.NVRam == nil || o.NVRam.Template == "" {
		return efi.FindFirmware(m.opts.Root, m.secureBoot())
	}
	// Images in the format qcow2 are not supported here.
	for _, file := range []string{o.Loader.Path, o.NVRam.Template} {
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() || strings.HasSuffix(file, ".qcow2") {
			m.noteDifference("new EFI variables and the firmware of this machine, because %s cannot be used", file)
			return efi.FindFirmware(m.opts.Root, m.secureBoot())
		}
	}
	return efi.Firmware{Code: o.Loader.Path, Vars: o.NVRam.Template}, nil
}

// addConsoles adds the serial port, QEMU's monitor and the display, which every trial
// has. The serial port writes to QEMU's standard output, and the monitor uses an
// inherited socket.
func (m *machine) addConsoles() error {
	m.addArgs("-chardev", "stdio,id=serial,signal=off", "-serial", "chardev:serial")
	m.addArgs("-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", monitorFD), "-mon", "chardev=monitor,mode=control")
	display := "VGA"
	for _, v := range m.domain.Devices.Videos {
		if known := map[string]string{"vmvga": "vmware-svga", "qxl": "VGA", "virtio": "virtio-vga", "cirrus": "cirrus-vga"}[v.Model.Type]; known != "" {
			display = known
		}
	}
	m.addArgs("-device", display)
	return nil
}

// leaveOut records the devices that the trial omits.
func (m *machine) leaveOut() {
	d := m.domain.Devices
	for what, n := range map[string]int{
		"host devices": len(d.Hostdevs), "file systems": len(d.Filesystems), "TPM": len(d.TPMs), "redirected USB devices": len(d.RedirDevs),
		"smart cards": len(d.Smartcards), "shared memory": len(d.Shmems),
	} {
		if n > 0 {
			m.noteDifference("no %s", what)
		}
	}
}
