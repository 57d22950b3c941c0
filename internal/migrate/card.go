package migrate

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/inventory"
)

// counted is a name that the kernel gives in the order of the cards, which they keep.
var counted = regexp.MustCompile(`^eth\d+$`)

// cardsOf pairs the names of network cards in the guest's configuration with their MACs: by the
// MAC the configuration has, by the slot in the name (ens192 is in slot 192), and else by their
// order, if there are as many names as cards. Names that are left are unsure.
func cardsOf(vm *inventory.VM, guests []guest.Report) (cards []convert.Card, unsure []string) {
	free := slices.Clone(vm.NICs)
	pair := func(name string, is func(inventory.NIC) bool) bool {
		i := slices.IndexFunc(free, is)
		if i >= 0 {
			cards = append(cards, convert.Card{MAC: free[i].MAC, Name: name})
			free = slices.Delete(free, i, i+1)
		}
		return i >= 0
	}
	var names []string
	for _, n := range namedCards(guests) {
		if n.MAC == "" || !pair(n.Name, func(c inventory.NIC) bool { return c.MAC == n.MAC }) {
			names = append(names, n.Name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return pair(name, func(c inventory.NIC) bool { return c.PCISlot > 0 && name == fmt.Sprintf("ens%d", c.PCISlot) })
	})
	if len(names) != len(free) {
		return cards, names
	}
	slices.SortStableFunc(free, func(a, b inventory.NIC) int { return cmp.Compare(a.PCISlot, b.PCISlot) })
	for i, name := range names {
		cards = append(cards, convert.Card{MAC: free[i].MAC, Name: name})
	}
	return cards, nil
}

// namedCards are those that a guest configures by a name that hangs on their slot, each once, in
// the order of the slots.
func namedCards(guests []guest.Report) (found []linux.NIC) {
	for _, g := range guests {
		if g.Linux == nil {
			continue
		}
		for _, n := range g.Linux.NICs {
			had := slices.ContainsFunc(found, func(f linux.NIC) bool { return f.Name == n.Name })
			if n.Name == "" || n.By == linux.ByAny || had || strings.ContainsAny(n.Name, "*?[") || counted.MatchString(n.Name) {
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
