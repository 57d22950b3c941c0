package inventory

import "strings"

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
