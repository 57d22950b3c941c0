package testboot

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Static are addresses that a guest's configuration gives to one of its network cards.
type Static struct {
	MAC       string       `json:"mac,omitempty"` // lower case; "": it is not known which card's
	Addresses []netip.Addr `json:"addresses"`
}

// String describes the missing addresses of the card.
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

// missing returns the addresses of want that the guest does not have on their cards. An interface built
// on a card, a bridge or a bond, may have another MAC; an address on another card of the VM counts as
// missing.
func missing(want []Static, have []AgentCard, nics []string) (all []Static) {
	for _, w := range want {
		lacks := Static{MAC: w.MAC}
		for _, a := range w.Addresses {
			got := slices.ContainsFunc(have, func(c AgentCard) bool {
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
