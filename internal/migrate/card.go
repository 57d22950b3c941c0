package migrate

import (
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/inventory"
)

// Pulled marks the cards that somebody had disconnected while the VM ran: once it is off that is not
// told any more, and a VM that was taken off a network is not to come back on it unasked.
func Pulled(running, off *inventory.VM) (warnings []inventory.Warning) {
	off.NICs = slices.Clone(off.NICs)
	for _, was := range running.NICs {
		at := slices.IndexFunc(off.NICs, func(n inventory.NIC) bool { return n.Key == was.Key })
		if at < 0 || was.Connected || !was.StartConnected {
			continue
		}
		off.NICs[at].Pulled = true
		warnings = append(warnings, inventory.Warning{
			Code: "nic-pulled", Text: fmt.Sprintf("network card %s was disconnected while the VM ran, and is so at the target", was.MAC),
			Remedy: "connect it there once that is wanted",
		})
	}
	return warnings
}

// seatsOf are the cards as the guest found them at the source.
func seatsOf(vm *inventory.VM) (seats []convert.Seat) {
	for _, n := range vm.NICs {
		seats = append(seats, convert.Seat{MAC: n.MAC, PCI: n.PCIAddress(), Driver: n.Model})
	}
	return seats
}
