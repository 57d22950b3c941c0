package boot

import (
	"fmt"
	"os"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// A qemuCommand builds a QEMU command line from a domain.
type qemuCommand struct {
	args []string // arguments so far, without the name of the program
}

// addArgs appends arguments to the command line.
func (c *qemuCommand) addArgs(args ...string) { c.args = append(c.args, args...) }

// qemuArgs returns QEMU's arguments for d. With EFI firmware it creates the variable store at nvram. A
// value that it does not support is an error.
func qemuArgs(d *libvirtxml.Domain, nvram string) ([]string, error) {
	if d.OS == nil || d.OS.Type == nil || d.Devices == nil {
		return nil, fmt.Errorf("no <os> with a <type>, or no <devices>")
	}
	c := &qemuCommand{}
	c.addArgs("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio")
	steps := []func(*libvirtxml.Domain) error{
		c.addMachine, c.addMemory, c.addProcessors, c.addIdentity, c.addClock,
		func(d *libvirtxml.Domain) error { return c.addFirmware(d.OS, nvram) },
		c.addControllers, c.addDisks, c.addNetworkCards, c.addDisplay,
	}
	for _, step := range steps {
		if err := step(d); err != nil {
			return nil, err
		}
	}
	return c.args, nil
}

// addMachine adds the machine type. The accelerator is always TCG. One thread emulates all processors: with
// a thread each, they waited for each other 9 times longer on a busy machine. SMM is enabled for q35, which
// secure flash requires.
func (c *qemuCommand) addMachine(d *libvirtxml.Domain) error {
	if d.Type != "kvm" && d.Type != "qemu" {
		return fmt.Errorf("domain type %q is not understood", d.Type)
	}
	t := d.OS.Type
	if t.Type != "hvm" || t.Arch != "x86_64" || (t.Machine != "pc" && t.Machine != "q35") {
		return fmt.Errorf("machine %q of arch %q, type %q, is not understood", t.Machine, t.Arch, t.Type)
	}
	machine := t.Machine
	if t.Machine == "q35" { // secure flash requires SMM
		machine += ",smm=on"
	}
	if d.Features == nil || d.Features.ACPI == nil {
		machine += ",acpi=off" // QEMU's default is on
	}
	c.addArgs("-accel", "tcg,thread=single", "-machine", machine)
	return nil
}

// addMemory adds the memory size, which must be in MiB or GiB.
func (c *qemuCommand) addMemory(d *libvirtxml.Domain) error {
	if d.Memory == nil {
		return fmt.Errorf("no <memory>")
	}
	shift := map[string]int{"MiB": 0, "GiB": 10} // -m counts MiB
	by, ok := shift[d.Memory.Unit]
	if !ok {
		return fmt.Errorf("memory unit %q is not understood", d.Memory.Unit)
	}
	c.addArgs("-m", fmt.Sprint(d.Memory.Value<<by))
	return nil
}

// addProcessors adds the number of CPUs and their topology. It uses TCG's best CPU model in place of
// the domain's, because there is no host CPU to pass through.
func (c *qemuCommand) addProcessors(d *libvirtxml.Domain) error {
	if d.VCPU == nil {
		return fmt.Errorf("no <vcpu>")
	}
	smp := fmt.Sprint(d.VCPU.Value)
	if d.CPU != nil && d.CPU.Topology != nil {
		t := d.CPU.Topology
		if uint(t.Sockets*max(t.Dies, 1)*t.Cores*t.Threads) != d.VCPU.Value {
			return fmt.Errorf("topology of %d sockets, %d cores, %d threads is not %d vcpus", t.Sockets, t.Cores, t.Threads, d.VCPU.Value)
		}
		smp += fmt.Sprintf(",sockets=%d,cores=%d,threads=%d", t.Sockets, t.Cores, t.Threads)
	}
	c.addArgs("-cpu", "max", "-smp", smp)
	return nil
}

// addIdentity adds the UUID and the SMBIOS fields of sysinfo.
func (c *qemuCommand) addIdentity(d *libvirtxml.Domain) error {
	c.addArgs("-uuid", d.UUID) // also the SMBIOS UUID
	if d.OS.SMBios == nil {    // the guest sees QEMU's defaults
		return nil
	}
	if d.OS.SMBios.Mode != "sysinfo" || len(d.SysInfo) != 1 || d.SysInfo[0].SMBIOS == nil {
		return fmt.Errorf("smbios mode %q without one <sysinfo> is not understood", d.OS.SMBios.Mode)
	}
	words := []string{"type=1"} // system information
	for _, e := range d.SysInfo[0].SMBIOS.System.Entry {
		if e.Name == "uuid" && !strings.EqualFold(e.Value, d.UUID) {
			return fmt.Errorf("sysinfo's uuid %s is not the domain's %s", e.Value, d.UUID)
		}
		words = append(words, e.Name+"="+escapeCommas(e.Value))
	}
	c.addArgs("-smbios", strings.Join(words, ","))
	return nil
}

// addClock adds the offset of the real-time clock. Timers are ignored.
func (c *qemuCommand) addClock(d *libvirtxml.Domain) error {
	if d.Clock == nil { // QEMU's default is UTC
		return nil
	}
	if d.Clock.Offset != "utc" && d.Clock.Offset != "localtime" {
		return fmt.Errorf("clock offset %q is not understood", d.Clock.Offset)
	}
	c.addArgs("-rtc", "base="+d.Clock.Offset)
	return nil
}

// addFirmware selects OVMF as libvirt's auto-selection does, by the secure-boot feature. BIOS needs no
// argument.
func (c *qemuCommand) addFirmware(o *libvirtxml.DomainOS, nvram string) error {
	if o.Loader != nil {
		return c.addNamedFirmware(o, nvram)
	}
	if o.Firmware == "" || o.Firmware == "bios" { // SeaBIOS is QEMU's default
		return nil
	}
	if o.Firmware != "efi" {
		return fmt.Errorf("firmware %q is not understood", o.Firmware)
	}
	suffix := ""
	if o.FirmwareInfo != nil {
		for _, f := range o.FirmwareInfo.Features {
			if f.Enabled == "yes" {
				suffix = ".ms" // Microsoft's keys are enrolled
			}
		}
	}
	const dir = "/usr/share/OVMF/"
	return c.addFlash(dir+"OVMF_CODE_4M"+suffix+".fd", dir+"OVMF_VARS_4M"+suffix+".fd", nvram, suffix != "")
}

// addNamedFirmware adds the firmware that a domain names, with a copy of its template of variables, as
// libvirt creates it at the first start.
func (c *qemuCommand) addNamedFirmware(o *libvirtxml.DomainOS, nvram string) error {
	l := o.Loader
	if o.Firmware != "" || l.Type != "pflash" || l.Readonly != "yes" || o.NVRam == nil || o.NVRam.Template == "" || o.NVRam.NVRam != "" {
		return fmt.Errorf("a loader of type %q beside firmware %q, or without a template of its variables, is not understood", l.Type, o.Firmware)
	}
	return c.addFlash(l.Path, o.NVRam.Template, nvram, l.Secure == "yes")
}

// addFlash copies the template to nvram and adds the flash chips for code and variables.
func (c *qemuCommand) addFlash(code, template, nvram string, secure bool) error {
	vars, err := os.ReadFile(template)
	if err != nil {
		return err
	}
	if err := os.WriteFile(nvram, vars, 0o600); err != nil {
		return err
	}
	c.addArgs("-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+escapeCommas(code),
		"-drive", "if=pflash,unit=1,format=raw,file="+escapeCommas(nvram))
	if secure { // only code in SMM may write the variables
		c.addArgs("-global", "driver=cfi.pflash01,property=secure,value=on")
	}
	return nil
}

// addDisplay adds the display adapter that the guest expects, without a display. It also checks memory
// balloon and serial ports.
func (c *qemuCommand) addDisplay(d *libvirtxml.Domain) error {
	for _, v := range d.Devices.Videos {
		if v.Model.Type != "vga" {
			return fmt.Errorf("video model %q is not understood", v.Model.Type)
		}
		c.addArgs("-device", "VGA")
	}
	if b := d.Devices.MemBalloon; b != nil && b.Model != "none" {
		return fmt.Errorf("memballoon model %q is not understood", b.Model)
	}
	if len(d.Devices.Serials) > 1 {
		return fmt.Errorf("%d serial ports are not understood, only one", len(d.Devices.Serials))
	}
	return nil
}

// escapeCommas doubles the commas of a value inside QEMU's comma-separated options.
func escapeCommas(s string) string { return strings.ReplaceAll(s, ",", ",,") }
