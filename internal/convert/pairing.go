package convert

import (
	"cmp"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/inventory"
)

// PairCards assigns MACs to the names of network cards in the guest's configuration: by the configured
// MAC, by the slot in the name (ens192 is in slot 192), and otherwise by their order, if there are as
// many names as cards. unsure contains the names that it could not assign.
func PairCards(vm *inventory.VM, guests []guest.Report) (cards []Card, unsure []string) {
	free := slices.Clone(vm.NICs)
	// pair assigns the first free card that satisfies is, and reports whether there was one.
	pair := func(name string, is func(inventory.NIC) bool) bool {
		i := slices.IndexFunc(free, is)
		if i >= 0 {
			cards = append(cards, Card{MAC: free[i].MAC, Name: name})
			free = slices.Delete(free, i, i+1)
		}
		return i >= 0
	}
	var names []string
	byHardware := map[string]bool{} // cards that the conversion has named by MAC; their order is irrelevant
	for _, n := range namedCards(guests) {
		byHardware[n.Name] = n.By == linux.ByHardware
		if n.By == linux.ByMAC && !slices.ContainsFunc(vm.NICs, func(c inventory.NIC) bool { return c.MAC == n.MAC }) {
			continue // the card does not exist any more; the conversion notes it
		}
		if n.MAC == "" || !pair(n.Name, func(c inventory.NIC) bool { return c.MAC == n.MAC }) {
			names = append(names, n.Name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return pair(name, func(c inventory.NIC) bool { return slices.Contains(c.SlotNames(), name) }) || byHardware[name]
	})
	// If the numbers differ, the order does not determine the assignment.
	if len(names) != len(free) {
		return cards, names
	}
	slices.SortStableFunc(free, inventory.CompareByBus)
	for i, name := range names {
		cards = append(cards, Card{MAC: free[i].MAC, Name: name})
	}
	return cards, nil
}

// namedCards returns the cards that a guest configures by a name that depends on their slot, without
// duplicates, in the order of the slots.
func namedCards(guests []guest.Report) (found []linux.NIC) {
	for _, g := range guests {
		if g.Linux == nil {
			continue
		}
		for _, n := range g.Linux.NICs {
			had := slices.ContainsFunc(found, func(f linux.NIC) bool { return f.Name == n.Name })
			if n.Name == "" || n.By == linux.ByAny || had || strings.ContainsAny(n.Name, "*?[") || kernelName.MatchString(n.Name) {
				continue
			}
			found = append(found, n)
		}
	}
	slices.SortStableFunc(found, func(a, b linux.NIC) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return found
}

// RecountedNames returns the names of cards that the kernel counts (eth0, eth1) and whose order may
// change: those of a VM with several models, whose order was that of their drivers. Cards of one model
// keep their order, because the target has them in the order of the source's bus.
func RecountedNames(vm *inventory.VM, guests []guest.Report) (names []string) {
	models := map[string]bool{}
	for _, n := range vm.NICs {
		models[n.Model] = true
	}
	if len(models) < 2 {
		return nil
	}
	for _, g := range guests {
		if g.Linux == nil {
			continue
		}
		for _, n := range g.Linux.NICs {
			if kernelName.MatchString(n.Name) && n.By != linux.ByMAC && !slices.Contains(names, n.Name) {
				names = append(names, n.Name)
			}
		}
	}
	return names
}
