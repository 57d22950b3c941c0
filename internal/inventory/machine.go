package inventory

import (
	"cmp"
	"slices"
	"strings"
)

// Topology returns the number of sockets and of cores per socket. If VMware's numbers contradict each
// other, each processor has its own socket.
func (vm *VM) Topology() (sockets, cores int) {
	if n := vm.CoresPerSocket; n > 0 && vm.CPUs%n == 0 {
		return vm.CPUs / n, n
	}
	return vm.CPUs, 1
}

// Serial returns the SMBIOS serial number that VMware derives from the UUID: "VMware-56 4d 12 34 00 00
// 11 11-22 22 33 33 44 44 55 55". Licences may be bound to it. It is empty for a VM without UUID.
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

// DisksInGuestOrder returns the indices of the VM's disks in the order in which a guest finds them: by controller,
// then by unit.
func (vm *VM) DisksInGuestOrder() []int {
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

// LinkDown reports whether the card must be disconnected when the VM starts.
func (n NIC) LinkDown() bool { return !n.StartConnected || n.DisconnectedByDecamp }

// A Fact is a part of a VM's description that a source can return separately for all VMs at once.
// Complete descriptions take much longer.
type Fact string

// Facts.
const (
	NoFact       Fact = ""         // only part of a complete description
	FactListed   Fact = "roll"     // part of each list of VMs: name and location
	FactPower    Fact = "power"    // Power
	FactGuest    Fact = "guest"    // GuestID, GuestName
	FactHardware Fact = "hardware" // CPUs, MemoryMiB
	FactFirmware Fact = "firmware" // Firmware
	FactTools    Fact = "tools"    // ToolsRunning
	FactTracking Fact = "tracking" // ChangeTracking
)
