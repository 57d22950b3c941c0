package inventory

import (
	"cmp"
	"fmt"
)

// VMware numbers the slots of its buses: five bits are the device, five its bridge, and the
// others the function of the bridge. Bridge 1 is PCI; 5 to 8 have eight PCI Express ports each.
const (
	pciBridge     = 1 // bridge of conventional PCI
	firstPort     = 5 // first bridge of PCI Express
	lastPort      = 8 // last bridge of PCI Express
	portsOfBridge = 8 // number of ports of a PCI Express bridge
	pciBus        = 2 // first bus number that the firmware assigns
)

// slotParts splits the number of the slot into its three parts.
func (n NIC) slotParts() (bridge, function, device int) {
	return n.PCISlot >> 5 & 31, n.PCISlot >> 10, n.PCISlot & 31
}

// PCIAddress returns the address at which a guest finds the card at the source, "0000:0b:00.0". It
// assumes that VMware's firmware numbered the buses of its usual bridges. It returns "" if the address
// is unknown.
func (n NIC) PCIAddress() string {
	bridge, function, device := n.slotParts()
	switch {
	case n.PCISlot <= 0 || function >= portsOfBridge:
		return ""
	case bridge == pciBridge && function == 0:
		return fmt.Sprintf("0000:%02x:%02x.0", pciBus, device)
	case bridge >= firstPort && bridge <= lastPort:
		return fmt.Sprintf("0000:%02x:%02x.0", pciBus+1+(bridge-firstPort)*portsOfBridge+function, device)
	}
	return ""
}

// SlotNames returns the names that Linux derives from the slot: ens192. The slots of further ports of a
// bridge follow those of its first port: 1184 is ens161.
func (n NIC) SlotNames() []string {
	if n.PCISlot <= 0 {
		return nil
	}
	return []string{fmt.Sprintf("ens%d", n.PCISlot), fmt.Sprintf("ens%d", n.PCISlot&1023+n.PCISlot>>10)}
}

// CompareByBus compares cards by their position on the bus, for slices.SortFunc. A kernel numbers the
// cards of one driver in this order: eth0, eth1. Cards with unknown slots are equal.
func CompareByBus(a, b NIC) int {
	bridgeA, functionA, deviceA := a.slotParts()
	bridgeB, functionB, deviceB := b.slotParts()
	return cmp.Or(cmp.Compare(bridgeA, bridgeB), cmp.Compare(functionA, functionB), cmp.Compare(deviceA, deviceB))
}
