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

// StaticAddresses returns the addresses that what detect found in vm's guest gives to its cards, of each card in the
// order of the VM. A card is known by the MAC in the configuration, by its name as in convert.PairCards, or by
// being the only one; addresses of others are last, without a MAC. Those for a card that the VM does
// not have are left out: the guest does not have them at the source, either.
func StaticAddresses(vm *inventory.VM, guests []guest.Report) []testboot.Static {
	s := statics{vm: vm}
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
				s.add(cmp.Or(mac, s.only(configured(g.Linux.NICs))), n.Addresses)
			}
		}
		if g.Windows != nil {
			for _, a := range g.Windows.Static {
				s.add(cmp.Or(a.MAC, s.only(len(g.Windows.Static))), a.Addresses)
			}
		}
	}
	return s.all()
}

// configured is how many cards a configuration names, which may say it in several files.
func configured(nics []linux.NIC) int {
	names := map[string]bool{}
	for _, n := range nics {
		names[cmp.Or(n.Name, n.MAC)] = true
	}
	return len(names)
}

// statics are addresses by card, while they are collected.
type statics struct {
	vm  *inventory.VM
	got []testboot.Static
}

// only is the MAC that a configuration without one is of: that of the one card, if both are one.
func (s *statics) only(configured int) string {
	if len(s.vm.NICs) == 1 && configured == 1 {
		return s.vm.NICs[0].MAC
	}
	return ""
}

// add puts addresses, each with or without its prefix, to a card.
func (s *statics) add(mac string, texts []string) {
	mac = strings.ToLower(mac)
	if mac != "" && s.place(mac) < 0 {
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

// place is where the VM has a card; -1: nowhere.
func (s *statics) place(mac string) int {
	return slices.IndexFunc(s.vm.NICs, func(n inventory.NIC) bool { return strings.EqualFold(n.MAC, mac) })
}

func (s *statics) all() []testboot.Static {
	got := slices.DeleteFunc(s.got, func(c testboot.Static) bool { return len(c.Addresses) == 0 })
	slices.SortStableFunc(got, func(a, b testboot.Static) int {
		last := func(c testboot.Static) int {
			if c.MAC == "" {
				return len(s.vm.NICs)
			}
			return s.place(c.MAC)
		}
		return cmp.Compare(last(a), last(b))
	})
	return got
}
