package targets

import (
	"fmt"
	"testing"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/inventory"
)

// An address is assigned to a card by the MAC or the interface name of the configuration, or because the VM has only
// one card.
func TestStaticAddresses(t *testing.T) {
	t.Parallel()
	const one, two = "00:50:56:00:00:01", "00:50:56:00:00:02"
	first, second := inventory.NIC{Key: 4000, MAC: one}, inventory.NIC{Key: 4001, MAC: two}
	nic := func(name, mac string, addresses ...string) linux.NIC {
		by := linux.ByName
		if mac != "" {
			by = linux.ByMAC
		}
		return linux.NIC{Name: name, MAC: mac, By: by, Addresses: addresses}
	}
	for name, c := range map[string]struct {
		vm   []inventory.NIC
		nics []linux.NIC
		want string
	}{
		"the only card":              {[]inventory.NIC{first}, []linux.NIC{nic("eth0", "", "10.0.0.5/24", "fd00::5/64")}, "[{" + one + " [10.0.0.5 fd00::5]}]"},
		"the only card, two files":   {[]inventory.NIC{first}, []linux.NIC{nic("eth0", "", "10.0.0.5/24"), nic("eth0", "", "10.0.0.5", "10.0.0.6/24")}, "[{" + one + " [10.0.0.5 10.0.0.6]}]"},
		"by MAC":                     {[]inventory.NIC{first, second}, []linux.NIC{nic("lan", two, "10.0.0.6/24"), nic("", one, "10.0.0.5/24")}, "[{" + one + " [10.0.0.5]} {" + two + " [10.0.0.6]}]"},
		"by name, in their order":    {[]inventory.NIC{first, second}, []linux.NIC{nic("ens192", "", "10.0.0.5/24"), nic("ens224", "", "10.0.0.6/24")}, "[{" + one + " [10.0.0.5]} {" + two + " [10.0.0.6]}]"},
		"one card unknown":           {[]inventory.NIC{first, second}, []linux.NIC{nic("ens224", "", "10.0.0.6/24"), nic("", two, "10.0.0.7")}, "[{" + two + " [10.0.0.7]} { [10.0.0.6]}]"},
		"both cards unknown":         {[]inventory.NIC{first, second}, []linux.NIC{nic("ens224", "", "10.0.0.6/24")}, "[{ [10.0.0.6]}]"},
		"removed card":               {[]inventory.NIC{first}, []linux.NIC{nic("old", two, "10.0.0.6/24")}, "[]"},
		"DHCP and invalid addresses": {[]inventory.NIC{first}, []linux.NIC{nic("ens192", ""), nic("ens192", "", "web01", "10.0.0.300")}, "[]"},
	} {
		got := StaticAddresses(&inventory.VM{NICs: c.vm}, []guest.Report{{}, {Linux: &linux.Guest{NICs: c.nics}}})
		text := "["
		for i, s := range got {
			if i > 0 {
				text += " "
			}
			text += fmt.Sprintf("{%s %v}", s.MAC, s.Addresses)
		}
		if text += "]"; text != c.want {
			t.Errorf("%s: got %s, want %s", name, text, c.want)
		}
	}
	windows := &guest.Windows{Static: []guest.StaticAddress{{MAC: two, Addresses: []string{"10.0.0.6/24"}}, {Addresses: []string{"10.0.0.5/24"}}}}
	got := StaticAddresses(&inventory.VM{NICs: []inventory.NIC{first, second}}, []guest.Report{{Windows: windows}})
	if len(got) != 2 || got[0].MAC != two || got[1].MAC != "" || got[1].String() != "no network card has got 10.0.0.5, which the guest's configuration gives it" {
		t.Errorf("Windows: got %v", got)
	}
}
