package inventory

import (
	"cmp"
	"fmt"
)

// VMware numbers the slots of its buses: five bits are the device, five its bridge, and what is
// left the bridge's function. Bridge 1 leads to PCI, 5 to 8 have eight ports of PCI Express each.
const (
	pciBridge     = 1
	firstPort     = 5
	lastPort      = 8
	portsOfBridge = 8
	pciBus        = 2 // the first that the firmware numbers
)

// slotParts takes the number of a slot apart.
func (n NIC) slotParts() (bridge, function, device int) {
	return n.PCISlot >> 5 & 31, n.PCISlot >> 10, n.PCISlot & 31
}

// PCIAddress is where a guest finds the card at the source, "0000:0b:00.0", if VMware's firmware
// numbered the buses of its usual bridges; "" if that is not known.
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

// SlotNames are what a Linux calls the card by its slot: ens192. The slots of a bridge's further
// ports follow the first one's: 1184 is ens161.
func (n NIC) SlotNames() []string {
	if n.PCISlot <= 0 {
		return nil
	}
	return []string{fmt.Sprintf("ens%d", n.PCISlot), fmt.Sprintf("ens%d", n.PCISlot&1023+n.PCISlot>>10)}
}

// CompareByBus orders cards as a guest finds them on the bus, which is how a kernel counts those
// of one driver: eth0, eth1. Cards whose slot is not known are equal to each other.
func CompareByBus(a, b NIC) int {
	bridgeA, functionA, deviceA := a.slotParts()
	bridgeB, functionB, deviceB := b.slotParts()
	return cmp.Or(cmp.Compare(bridgeA, bridgeB), cmp.Compare(functionA, functionB), cmp.Compare(deviceA, deviceB))
}
