package targets

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/testboot"
)

// StaticAddresses returns the static addresses that the detect step found in the guest, in the order of
// the VM's cards.
//
// A card is identified by the MAC in the configuration, by its name as in convert.PairCards, or because
// it is the
// only card. Addresses of unidentified cards come last, without a MAC. Addresses of cards that the VM
// does not
// have are omitted: the guest does not use them at the source, either.
func StaticAddresses(vm *inventory.VM, guests []guest.Report) []testboot.Static {
	s := staticsByCard{vm: vm}
	named, _ := convert.PairCards(vm, guests)
	for _, g := range guests {
		if g.Linux != nil {
			for _, n := range g.Linux.NICs {
				mac := n.MAC
				for _, c := range named {
					if mac == "" && n.Name == c.Name {
						mac = c.MAC
					}
				}
				s.addAddresses(cmp.Or(mac, s.soleMAC(countConfigured(g.Linux.NICs))), n.Addresses)
			}
		}
		if g.Windows != nil {
			for _, a := range g.Windows.Static {
				s.addAddresses(cmp.Or(a.MAC, s.soleMAC(len(g.Windows.Static))), a.Addresses)
			}
		}
	}
	return s.sortByCard()
}

// countConfigured returns the number of different cards in nics. A configuration can describe one card
// in several files.
func countConfigured(nics []linux.NIC) int {
	names := map[string]bool{}
	for _, n := range nics {
		names[cmp.Or(n.Name, n.MAC)] = true
	}
	return len(names)
}

// staticsByCard collects the addresses of a VM by card.
type staticsByCard struct {
	vm  *inventory.VM     // the VM whose cards are configured
	got []testboot.Static // one element per MAC; the MAC is in lower case, or empty if unknown
}

// soleMAC returns the MAC for a configuration without one: the MAC of the VM's card, if the VM has
// exactly one card and exactly one is configured. Otherwise it returns "".
func (s *staticsByCard) soleMAC(configured int) string {
	if len(s.vm.NICs) == 1 && configured == 1 {
		return s.vm.NICs[0].MAC
	}
	return ""
}

// addAddresses adds addresses, each with or without a prefix length, to the card with the MAC. It
// ignores
// MACs that the VM does not have, texts that are not addresses, and duplicates.
func (s *staticsByCard) addAddresses(mac string, texts []string) {
	mac = strings.ToLower(mac)
	if mac != "" && s.cardIndex(mac) < 0 {
		return
	}
	i := slices.IndexFunc(s.got, func(c testboot.Static) bool { return c.MAC == mac })
	if i < 0 {
		i, s.got = len(s.got), append(s.got, testboot.Static{MAC: mac})
	}
	for _, text := range texts {
		bare, _, _ := strings.Cut(text, "/")
		if a, err := netip.ParseAddr(bare); err == nil && !slices.Contains(s.got[i].Addresses, a) {
			s.got[i].Addresses = append(s.got[i].Addresses, a)
		}
	}
}

// cardIndex returns the index of the card with the MAC in vm.NICs, or -1.
func (s *staticsByCard) cardIndex(mac string) int {
	return slices.IndexFunc(s.vm.NICs, func(n inventory.NIC) bool { return strings.EqualFold(n.MAC, mac) })
}

// sortByCard returns the collected addresses in the order of vm.NICs; cards without a MAC are last.
// Cards without addresses are removed.
func (s *staticsByCard) sortByCard() []testboot.Static {
	got := slices.DeleteFunc(s.got, func(c testboot.Static) bool { return len(c.Addresses) == 0 })
	slices.SortStableFunc(got, func(a, b testboot.Static) int {
		last := func(c testboot.Static) int {
			if c.MAC == "" {
				return len(s.vm.NICs)
			}
			return s.cardIndex(c.MAC)
		}
		return cmp.Compare(last(a), last(b))
	})
	return got
}
