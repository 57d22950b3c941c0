package testboot

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Static contains addresses that the guest's configuration assigns to one network card.
type Static struct {
	MAC       string       `json:"mac,omitempty"` // MAC in lower case; empty if the card is unknown
	Addresses []netip.Addr `json:"addresses"`     // addresses without prefix lengths
}

// String describes the missing addresses of a card, for messages.
func (s Static) String() string {
	card := "no network card has"
	if s.MAC != "" {
		card = "network card " + s.MAC + " has not"
	}
	var all []string
	for _, a := range s.Addresses {
		all = append(all, a.String())
	}
	return fmt.Sprintf("%s got %s, which the guest's configuration gives it", card, strings.Join(all, " and "))
}

// missingAddresses returns the addresses of want that the guest does not have on the
// right card. An interface built on a card, such as a bridge or a bond, may have
// another MAC. An address on another card of the VM counts as missing.
func missingAddresses(want []Static, have []AgentCard, nics []string) (all []Static) {
	for _, w := range want {
		lacks := Static{MAC: w.MAC}
		for _, a := range w.Addresses {
			got := slices.ContainsFunc(have, func(c AgentCard) bool {
				// An interface with an unknown MAC may be built on the card.
				others := w.MAC != "" && c.MAC != w.MAC && slices.Contains(nics, c.MAC)
				return !others && slices.ContainsFunc(c.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
			})
			if !got {
				lacks.Addresses = append(lacks.Addresses, a)
			}
		}
		if len(lacks.Addresses) > 0 {
			all = append(all, lacks)
		}
	}
	return all
}
