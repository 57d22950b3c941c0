package guest

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/guest/tree"
)

// WindowsID is the OS.ID of a Windows.
const WindowsID = "windows"

// firstWindows11 is the build that Windows 11 begins with. The registry still calls it
// Windows 10.
const firstWindows11 = 22000

// Windows is what the files and the registry of a Windows system say.
type Windows struct {
	Partition int        `json:"partition"` // partition of the system; 0 is the whole disk
	Product   string     `json:"product"`   // "Windows Server 2019 Standard"
	Edition   string     `json:"edition,omitempty"`
	Build     int        `json:"build,omitempty"`
	Arch      string     `json:"arch,omitempty"` // x86_64, i386 or aarch64
	Computer  string     `json:"computer,omitempty"`
	Usage     tree.Usage `json:"usage"` // space of its volume; a Free of -1 is unknown
	Drivers   []Driver   `json:"drivers,omitempty"`

	VMwareTools bool `json:"vmwareTools"`
	GuestAgent  bool `json:"guestAgent"` // QEMU's
	Hibernated  bool `json:"hibernated"`
	FastStartup bool `json:"fastStartup"` // shutting down is hibernating
	Dynamic     bool `json:"dynamic"`     // whether it is on a volume of dynamic disks

	Static []StaticAddress `json:"static,omitempty"`

	unread bool // the registry does not tell which drivers there are
}

// A Driver is one of those that decide which hardware a Windows boots with, or has
// network with.
type Driver struct {
	Name  string `json:"name"`  // name of its service
	Start string `json:"start"` // boot, system, auto, demand or disabled
	File  bool   `json:"file"`  // the disk has its file
}

// A StaticAddress is an IPv4 configuration that does not come from DHCP. Windows keeps it
// for one network card, which it knows by its place and model.
type StaticAddress struct {
	Interface string   `json:"interface"`             // its GUID
	Name      string   `json:"name,omitempty"`        // "Ethernet0"
	Card      string   `json:"card,omitempty"`        // "vmxnet3 Ethernet Adapter"
	MAC       string   `json:"mac,omitempty"`         // empty where the registry does not tell it
	Addresses []string `json:"addresses"`             // "10.0.0.5/24"
	Gateways  []string `json:"gateways,omitempty"`    //
	DNS       []string `json:"nameServers,omitempty"` //
}

// boots reports whether the driver of a service is there and started at boot.
func (w *Windows) boots(service string) bool {
	for _, d := range w.Drivers {
		if d.Name == service {
			return d.Start == startBoot && d.File
		}
	}
	return false
}

// has reports whether the driver of a service is there and not disabled.
func (w *Windows) has(service string) bool {
	for _, d := range w.Drivers {
		if d.Name == service {
			return d.Start != startDisabled && d.File
		}
	}
	return false
}

// A controller is hardware that QEMU has, with the service that drives it.
type controller struct{ service, name string }

// controllers of the compat profile, in the order in which a verdict names them. msahci
// is what storahci was called before Windows 8.
func controllers() []controller {
	return []controller{
		{"pvscsi", "pvscsi"}, {"LSI_SAS", "LSI SAS"}, {"LSI_SCSI", "LSI"}, {"storahci", "SATA"}, {"msahci", "SATA"},
		{"stornvme", "NVMe"}, {"intelide", "IDE"},
	}
}

// cards of the compat profile.
func cards() []controller {
	return []controller{{"vmxnet3ndis6", "vmxnet3"}, {"e1iexpress", "e1000e"}, {"E1G60", "e1000"}}
}

// services are all that are looked up.
func services() []string {
	names := []string{"vioscsi", "viostor", "netkvm"}
	for _, c := range append(controllers(), cards()...) {
		names = append(names, c.service)
	}
	return names
}

// virtio names the bus that Windows boots from with drivers it has, or is empty.
func (w *Windows) virtio() string {
	switch {
	case w.boots("vioscsi"):
		return "virtio-scsi"
	case w.boots("viostor"):
		return "virtio-blk"
	}
	return ""
}

// compat names the hardware of the compat profile for which Windows has drivers: disk controllers for
// booting, and network cards.
func (w *Windows) compat() (disks, nics []string) {
	for _, c := range controllers() {
		if w.boots(c.service) {
			disks = append(disks, c.name)
		}
	}
	for _, c := range cards() {
		if w.has(c.service) {
			nics = append(nics, c.name)
		}
	}
	return disks, nics
}

// verdict describes the result for the system in a sentence.
func (w *Windows) verdict(os OS) string {
	return fmt.Sprintf("%s (%s): %s", w.Product, os.Version, w.outlook())
}

func (w *Windows) outlook() string {
	disks, nics := w.compat()
	bus := w.virtio()
	switch {
	case w.Hibernated:
		return "is hibernated: it would wake up on other hardware, and will not convert; shut it down in full first (powercfg /h off)"
	case w.unread:
		return "which drivers it has cannot be read: try it with compat profile"
	case bus != "" && w.has("netkvm"):
		return fmt.Sprintf("will boot with %s and virtio-net as it is", bus)
	case bus != "":
		return fmt.Sprintf("will boot with %s as it is; virtio-net needs virtio-win", bus)
	case len(disks) == 0:
		return "no driver for a controller that the target has starts at boot; virtio needs virt-v2v and virtio-win"
	case w.Dynamic:
		return fmt.Sprintf("will not convert, because it is on a dynamic disk; compat profile will boot (%s)", stay(disks, nics))
	}
	return fmt.Sprintf("compat profile will boot (%s); virtio needs virt-v2v and virtio-win", stay(disks, nics))
}

// stay spells the hardware that remains as it is: the first disk controller, and the card.
func stay(disks, nics []string) string {
	if len(nics) == 0 {
		return disks[0] + " stays"
	}
	return disks[0] + ", " + nics[0] + " stay"
}

// displayName is the product as people know it: Windows 11 calls itself 10.
func displayName(product string, build int) string {
	if rest, ok := strings.CutPrefix(product, "Windows 10"); ok && build >= firstWindows11 {
		return "Windows 11" + rest
	}
	return product
}
