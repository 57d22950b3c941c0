package testboot

import (
	"fmt"
	"net/netip"
	"testing"
)

// An address also counts as present on a device with another MAC, such as a bridge. It does not count on another card
// of the VM.
func TestMissingAddresses(t *testing.T) {
	t.Parallel()
	const one, two, bridge = "00:50:56:00:00:01", "00:50:56:00:00:02", "6e:00:00:00:00:01"
	want := []Static{{one, []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")}}, {"", []netip.Addr{netip.MustParseAddr("10.0.0.7")}}}
	card := func(mac string, addresses ...string) AgentCard {
		c := AgentCard{MAC: mac}
		for _, a := range addresses {
			c.Addresses = append(c.Addresses, netip.MustParsePrefix(a))
		}
		return c
	}
	for name, c := range map[string]struct {
		have []AgentCard
		want string
	}{
		"all present":            {[]AgentCard{card(one, "10.0.0.5/24", "fd00::5/64"), card(two, "10.0.0.7/24")}, "[]"},
		"with another prefix":    {[]AgentCard{card(one, "10.0.0.5/8", "fd00::5/128", "10.0.0.7/32")}, "[]"},
		"on a bridge and a VLAN": {[]AgentCard{card(one), card(bridge, "10.0.0.5/24", "10.0.0.7/24"), card(one, "fd00::5/64")}, "[]"},
		"on the other card":      {[]AgentCard{card(one, "fd00::5/64"), card(two, "10.0.0.5/24", "10.0.0.7/24")}, "[network card " + one + " has not got 10.0.0.5, which the guest's configuration gives it]"},
		"none":                   {[]AgentCard{card(one, "169.254.3.4/16")}, "[network card " + one + " has not got 10.0.0.5 and fd00::5, which the guest's configuration gives it no network card has got 10.0.0.7, which the guest's configuration gives it]"},
		"no card":                {nil, "[network card " + one + " has not got 10.0.0.5 and fd00::5, which the guest's configuration gives it no network card has got 10.0.0.7, which the guest's configuration gives it]"},
		"a common prefix":        {[]AgentCard{card(one, "10.0.0.50/24", "fd00::5/64"), card(two, "10.0.0.7/24")}, "[network card " + one + " has not got 10.0.0.5, which the guest's configuration gives it]"},
	} {
		if got := fmt.Sprint(missingAddresses(want, c.have, []string{one, two})); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
