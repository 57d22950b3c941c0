package guest

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/guest/tree"
)

// WindowsID is the OS.ID of each Windows.
const WindowsID = "windows"

// firstWindows11 is the first build of Windows 11, which the registry still calls Windows 10.
const firstWindows11 = 22000

// Windows describes a Windows system by its files and its registry.
type Windows struct {
	Partition int        `json:"partition"`          // partition of the system; 0 is the whole disk
	Product   string     `json:"product"`            // "Windows Server 2019 Standard"
	Edition   string     `json:"edition,omitempty"`  // EditionID: "ServerStandard"
	Build     int        `json:"build,omitempty"`    // build number: 17763
	Arch      string     `json:"arch,omitempty"`     // x86_64, i386 or aarch64
	Computer  string     `json:"computer,omitempty"` // computer name
	Usage     tree.Usage `json:"usage"`              // space of its volume; a Free of -1 is unknown
	Drivers   []Driver   `json:"drivers,omitempty"`  // drivers of the services in serviceNames

	VMwareTools bool `json:"vmwareTools"` // the service of VMware Tools is enabled
	GuestAgent  bool `json:"guestAgent"`  // the service of QEMU's guest agent is enabled
	Hibernated  bool `json:"hibernated"`  // hiberfil.sys contains a system to resume
	FastStartup bool `json:"fastStartup"` // a shutdown hibernates the kernel
	Dynamic     bool `json:"dynamic"`     // the system is on a volume of dynamic disks

	Static []StaticAddress `json:"static,omitempty"` // interfaces with static IPv4 addresses

	driversUnknown bool // the registry's list of drivers is not readable
}

// A Driver is the driver of a disk controller or network card.
type Driver struct {
	Name  string `json:"name"`  // name of its service
	Start string `json:"start"` // boot, system, auto, demand or disabled
	File  bool   `json:"file"`  // the driver's file exists on the volume
}

// A StaticAddress is an IPv4 configuration that is not from DHCP. Windows binds it to one network card,
// which it identifies by slot and model.
type StaticAddress struct {
	Interface string   `json:"interface"`             // GUID of the interface
	Name      string   `json:"name,omitempty"`        // name of the connection: "Ethernet0"
	Card      string   `json:"card,omitempty"`        // description of the driver: "vmxnet3 Ethernet Adapter"
	MAC       string   `json:"mac,omitempty"`         // MAC of the card; empty if the registry does not contain it
	Addresses []string `json:"addresses"`             // addresses with prefix length: "10.0.0.5/24"
	Gateways  []string `json:"gateways,omitempty"`    // default gateways
	DNS       []string `json:"nameServers,omitempty"` // name servers
}

// bootsWith reports whether the driver of a service exists and starts at boot.
func (w *Windows) bootsWith(service string) bool {
	for _, d := range w.Drivers {
		if d.Name == service {
			return d.Start == startBoot && d.File
		}
	}
	return false
}

// hasDriver reports whether the driver of a service exists and is not disabled.
func (w *Windows) hasDriver(service string) bool {
	for _, d := range w.Drivers {
		if d.Name == service {
			return d.Start != startDisabled && d.File
		}
	}
	return false
}

// A controller is hardware of QEMU: the Windows service that drives it and its name in messages.
type controller struct{ service, name string }

// compatControllers returns the disk controllers of the compat profile in the order of preference in a
// verdict. msahci is the predecessor of storahci, before Windows 8.
func compatControllers() []controller {
	return []controller{
		{"pvscsi", "pvscsi"}, {"LSI_SAS", "LSI SAS"}, {"LSI_SCSI", "LSI"}, {"storahci", "SATA"}, {"msahci", "SATA"},
		{"stornvme", "NVMe"}, {"intelide", "IDE"},
	}
}

// compatCards returns the network cards of the compat profile.
func compatCards() []controller {
	return []controller{{"vmxnet3ndis6", "vmxnet3"}, {"e1iexpress", "e1000e"}, {"E1G60", "e1000"}}
}

// serviceNames returns all services that are looked up in the registry.
func serviceNames() []string {
	names := []string{"vioscsi", "viostor", "netkvm"}
	for _, c := range append(compatControllers(), compatCards()...) {
		names = append(names, c.service)
	}
	return names
}

// virtioBus returns the virtio bus that Windows can boot from with its installed drivers; empty if
// none.
func (w *Windows) virtioBus() string {
	switch {
	case w.bootsWith("vioscsi"):
		return "virtio-scsi"
	case w.bootsWith("viostor"):
		return "virtio-blk"
	}
	return ""
}

// compatHardware returns the hardware of the compat profile for which Windows has drivers: disk
// controllers to boot from, and network cards.
func (w *Windows) compatHardware() (disks, nics []string) {
	for _, c := range compatControllers() {
		if w.bootsWith(c.service) {
			disks = append(disks, c.name)
		}
	}
	for _, c := range compatCards() {
		if w.hasDriver(c.service) {
			nics = append(nics, c.name)
		}
	}
	return disks, nics
}

// describeVerdict returns the verdict as one sentence, with product and version.
func (w *Windows) describeVerdict(os OS) string {
	return fmt.Sprintf("%s (%s): %s", w.Product, os.Version, w.describeBoot())
}

// describeBoot returns the second half of the verdict: how the system boots at the target.
func (w *Windows) describeBoot() string {
	disks, nics := w.compatHardware()
	bus := w.virtioBus()
	switch {
	case w.Hibernated:
		return "is hibernated: it would resume on other hardware, and cannot be converted; shut it down completely first (powercfg /h off)"
	case w.driversUnknown:
		return "its list of drivers cannot be read: use the compat profile, and test it with --trial"
	case bus != "" && w.hasDriver("netkvm"):
		return fmt.Sprintf("will boot with %s and virtio-net without changes", bus)
	case bus != "":
		return fmt.Sprintf("will boot with %s without changes; virtio-net requires virtio-win", bus)
	case len(disks) == 0:
		return "has no boot driver for a controller of the target; virtio requires virt-v2v and virtio-win"
	case w.Dynamic:
		return fmt.Sprintf("cannot be converted, because it is on a dynamic disk; will boot only with the compat profile (%s)", describeHardware(disks, nics))
	}
	return fmt.Sprintf("will boot only with the compat profile (%s); virtio requires virt-v2v and virtio-win", describeHardware(disks, nics))
}

// describeHardware names the hardware that does not change: the first disk controller and card.
// disks must not be empty.
func describeHardware(disks, nics []string) string {
	if len(nics) == 0 {
		return disks[0] + " is kept"
	}
	return disks[0] + ", " + nics[0] + " are kept"
}

// displayName returns the marketing name of a product. Windows 11 calls itself Windows 10 in the
// registry.
func displayName(product string, build int) string {
	if rest, ok := strings.CutPrefix(product, "Windows 10"); ok && build >= firstWindows11 {
		return "Windows 11" + rest
	}
	return product
}
