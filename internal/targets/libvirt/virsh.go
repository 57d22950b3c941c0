package libvirt

import (
	"fmt"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
)

// virshCommand returns a virsh command to paste. name is the object of the command.
func (a address) virshCommand(command, name string) string {
	return "virsh -c " + fault.Quote(a.String()) + " " + command + " " + quoteOperand(name)
}

// quoteOperand quotes a name for a shell, so that a leading dash does not make it an option.
func quoteOperand(name string) string {
	if strings.HasPrefix(name, "-") {
		return "-- " + fault.Quote(name)
	}
	return fault.Quote(name)
}

// logCommand returns the command that displays QEMU's log on libvirt's host.
func (a address) logCommand(name string) string {
	folder := "/var/log/libvirt/qemu/"
	if a.driver == "qemu:///session" {
		folder = "~/.cache/libvirt/qemu/log/"
	}
	return "less " + folder + fault.Quote(name+".log")
}

// viewerCommand returns the command that opens the VM's display, or "" if it has no display.
func (a address) viewerCommand(name string, x *libvirtxml.Domain) string {
	if x.Devices == nil || len(x.Devices.Graphics) == 0 {
		return ""
	}
	return "virt-viewer -c " + fault.Quote(a.String()) + " " + quoteOperand(name)
}

// consoleCommand returns the command that opens the VM's serial console, or its display if it has no
// serial console.
func (a address) consoleCommand(name string, x *libvirtxml.Domain) string {
	if hasSerial(x) {
		return a.virshCommand("console", name)
	}
	return a.viewerCommand(name, x)
}

// hasSerial reports whether a domain has a serial console.
func hasSerial(x *libvirtxml.Domain) bool {
	return x.Devices != nil && (len(x.Devices.Serials) > 0 || len(x.Devices.Consoles) > 0)
}

// wrapError adds the domain and the address to err. It returns nil if err is nil.
func (a address) wrapError(d rpc.Domain, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("domain %q of libvirt at %s: %w", d.Name, a, err)
}
