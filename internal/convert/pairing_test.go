package convert

import (
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/inventory"
)

func TestPairCards(t *testing.T) {
	t.Parallel()
	card := func(mac string, slot int) inventory.NIC { return inventory.NIC{MAC: mac, PCISlot: slot} }
	byName := func(names ...string) (nics []linux.NIC) {
		for _, n := range names {
			nics = append(nics, linux.NIC{Name: n, By: linux.ByName})
		}
		return nics
	}
	for name, tt := range map[string]struct {
		vm     []inventory.NIC
		guest  []linux.NIC
		want   string
		unsure int
	}{
		"by slot, in another order": {[]inventory.NIC{card("a", 192), card("b", 160)}, byName("ens160", "ens192"), "ens160=b ens192=a", 0},
		"by order of slots":         {[]inventory.NIC{card("a", 192), card("b", 160)}, byName("enp19s0", "enp3s0"), "enp3s0=b enp19s0=a", 0},
		"by order, slots unknown":   {[]inventory.NIC{card("a", 0), card("b", 0)}, byName("ens192", "ens33"), "ens33=a ens192=b", 0},
		"by MAC": {[]inventory.NIC{card("a", 0), card("b", 0)},
			[]linux.NIC{{Name: "ens192", MAC: "b", By: linux.ByMAC}, {Name: "ens160", By: linux.ByName}}, "ens192=b ens160=a", 0},
		"fewer than cards":    {[]inventory.NIC{card("a", 0), card("b", 0)}, byName("ens192"), "", 1},
		"one of two, by slot": {[]inventory.NIC{card("a", 160), card("b", 192)}, byName("ens192"), "ens192=b", 0},
		"counted and any":     {[]inventory.NIC{card("a", 0)}, []linux.NIC{{Name: "eth0", By: linux.ByName}, {Name: "en*", By: linux.ByAny}}, "", 0},
		"twice":               {[]inventory.NIC{card("a", 0)}, byName("ens192", "ens192"), "ens192=a", 0},
		"the fourth card":     {[]inventory.NIC{card("a", 1184), card("b", 192)}, byName("ens161", "ens192"), "ens161=a ens192=b", 0},
		"a missing card":      {[]inventory.NIC{card("a", 192)}, []linux.NIC{{Name: "lan0", MAC: "z", By: linux.ByMAC}, {Name: "enp11s0", By: linux.ByName}}, "enp11s0=a", 0},
		"by hardware":         {[]inventory.NIC{card("a", 192), card("b", 224)}, []linux.NIC{{Name: "lan0", By: linux.ByHardware}, {Name: "ens224", By: linux.ByHardware}}, "ens224=b", 0},
	} {
		cards, unsure := PairCards(&inventory.VM{NICs: tt.vm}, []guest.Report{{}, {Linux: &linux.Guest{NICs: tt.guest}}})
		var got []string
		for _, c := range cards {
			got = append(got, c.Name+"="+c.MAC)
		}
		slices.Sort(got)
		want := strings.Fields(tt.want)
		slices.Sort(want)
		if !slices.Equal(got, want) || len(unsure) != tt.unsure {
			t.Errorf("%s: %v, unsure %v; want %v", name, got, unsure, want)
		}
	}
}

// Names that the kernel assigns by number can swap only if the cards are of different models.
func TestRecountedNames(t *testing.T) {
	t.Parallel()
	counted := []guest.Report{{}, {Linux: &linux.Guest{NICs: []linux.NIC{{Name: "eth0", By: linux.ByAny}, {Name: "eth1", By: linux.ByMAC}, {Name: "eth0", By: linux.ByAny}, {Name: "lan", By: linux.ByName}}}}}
	one, two := inventory.NIC{Model: "vmxnet3"}, inventory.NIC{Model: "e1000"}
	if got := RecountedNames(&inventory.VM{NICs: []inventory.NIC{one, one}}, counted); got != nil {
		t.Errorf("one model: got %q, want none", got)
	}
	if got := RecountedNames(&inventory.VM{NICs: []inventory.NIC{one, two}}, counted); !slices.Equal(got, []string{"eth0"}) {
		t.Errorf("two models: got %q, want eth0", got)
	}
}
