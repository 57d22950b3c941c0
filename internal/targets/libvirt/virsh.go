package libvirt

import (
	"fmt"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
)

// virsh is a command of libvirt's own client, to be pasted. name is what it is about.
func (a address) virsh(command, name string) string {
	return "virsh -c " + fault.Quote(a.String()) + " " + command + " " + operand(name)
}

// operand is a name in a command, which is no option even if it begins like one.
func operand(name string) string {
	if strings.HasPrefix(name, "-") {
		return "-- " + fault.Quote(name)
	}
	return fault.Quote(name)
}

// log is the command that shows what QEMU said, on libvirt's machine.
func (a address) log(name string) string {
	folder := "/var/log/libvirt/qemu/"
	if a.driver == "qemu:///session" {
		folder = "~/.cache/libvirt/qemu/log/"
	}
	return "less " + folder + fault.Quote(name+".log")
}

// screen is the command by which a person sees the VM's screen; empty where it has none.
func (a address) screen(name string, x *libvirtxml.Domain) string {
	if x.Devices == nil || len(x.Devices.Graphics) == 0 {
		return ""
	}
	return "virt-viewer -c " + fault.Quote(a.String()) + " " + operand(name)
}

// console is the command by which a person sees what the VM says: on its serial port, or else on its screen.
func (a address) console(name string, x *libvirtxml.Domain) string {
	if hasSerial(x) {
		return a.virsh("console", name)
	}
	return a.screen(name, x)
}

// hasSerial reports whether a domain has a serial console.
func hasSerial(x *libvirtxml.Domain) bool {
	return x.Devices != nil && (len(x.Devices.Serials) > 0 || len(x.Devices.Consoles) > 0)
}

// named adds the domain and the address to err, which may be nil.
func (a address) named(d rpc.Domain, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("domain %q of libvirt at %s: %w", d.Name, a, err)
}
