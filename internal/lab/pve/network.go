package pve

import (
	"cmp"
	"regexp"
)

// A Network is a bridge of the node, or a VNet of an SDN zone, that network cards of guests can be
// connected to.
type Network struct {
	Name string // name in the configuration of cards: bridge=NAME
	Zone string // zone of a VNet; empty for a bridge
}

// aclPath returns the path that SDN.Use is checked on. All bridges belong to the zone localnetwork.
func (n Network) aclPath() string {
	return "/sdn/zones/" + cmp.Or(n.Zone, "localnetwork") + "/" + n.Name
}

// findNetwork returns a network by name. If none exists, ok is false and n is a bridge of that name:
// Proxmox checks existence only when a guest starts.
func (s *Server) findNetwork(name string) (n Network, ok bool) {
	for _, n := range s.config.Networks {
		if n.Name == name {
			return n, true
		}
	}
	return Network{Name: name}, false
}

var (
	bridgeOf = regexp.MustCompile(`(?:^|,)bridge=([^,]+)`) // bridge of a card's option
	tagOf    = regexp.MustCompile(`(?:^|,)tag=(\d+)`)      // VLAN tag of a card's option
)

// checkCard returns a refusal if the caller lacks SDN.Use on the card's network, or on its VLAN.
func (c *call) checkCard(value string) error {
	bridge := bridgeOf.FindStringSubmatch(value)
	if bridge == nil {
		return nil
	}
	n, _ := c.findNetwork(bridge[1])
	at := n.aclPath()
	if vlan := tagOf.FindStringSubmatch(value); vlan != nil {
		at += "/" + vlan[1]
	}
	return c.token.requireAll(at, "SDN.Use")
}

// listNetworks lists the bridges and VNets that the caller may use or audit.
func listNetworks(c *call) (any, error) {
	list := []map[string]any{}
	for _, n := range c.config.Networks {
		if c.token.requireAny(n.aclPath(), "SDN.Use", "SDN.Audit") != nil {
			continue
		}
		kind := "bridge"
		if n.Zone != "" {
			kind = "vnet"
		}
		list = append(list, map[string]any{"iface": n.Name, "type": kind, "active": 1})
	}
	return list, nil
}
