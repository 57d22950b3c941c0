package inventory

import (
	"cmp"
	"slices"
	"strings"
)

// Topology is how the VM's processors are parted. One socket each, where VMware's numbers do not add up.
func (vm *VM) Topology() (sockets, cores int) {
	if n := vm.CoresPerSocket; n > 0 && vm.CPUs%n == 0 {
		return vm.CPUs / n, n
	}
	return vm.CPUs, 1
}

// Serial is the SMBIOS serial number that VMware derives from the UUID, to which licences are bound:
// "VMware-56 4d 12 34 00 00 11 11-22 22 33 33 44 44 55 55". A VM without UUID has none.
func (vm *VM) Serial() string {
	digits := strings.ReplaceAll(vm.UUID, "-", "")
	if digits == "" {
		return ""
	}
	var s strings.Builder
	s.WriteString("VMware")
	for i := 0; i+1 < len(digits); i += 2 {
		s.WriteByte("- "[min(i%16, 1)])
		s.WriteString(digits[i : i+2])
	}
	return s.String()
}

// Seated returns the indices of the VM's disks in the order in which a guest finds them: by controller,
// then by unit.
func (vm *VM) Seated() []int {
	place := map[int32]int{}
	for i, c := range vm.Controllers {
		place[c.Key] = i
	}
	order := make([]int, len(vm.Disks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := vm.Disks[i], vm.Disks[j]
		return cmp.Or(cmp.Compare(place[a.Controller], place[b.Controller]), cmp.Compare(a.Unit, b.Unit))
	})
	return order
}

// LinkDown reports whether the card is not to be connected when the VM starts.
func (n NIC) LinkDown() bool { return !n.StartConnected || n.Pulled }

// A Fact is something of a VM that a source can be asked for alone, of all VMs at once. To
// describe VMs whole takes it much longer.
type Fact string

// Facts.
const (
	NoFact       Fact = ""         // known of a described VM only
	OnRoll       Fact = "roll"     // known of each VM that is listed: what it is called, where it is
	FactPower    Fact = "power"    // Power
	FactGuest    Fact = "guest"    // GuestID, GuestName
	FactHardware Fact = "hardware" // CPUs, MemoryMiB
	FactFirmware Fact = "firmware" // Firmware
	FactTools    Fact = "tools"    // ToolsRunning
	FactTracking Fact = "tracking" // ChangeTracking
)
