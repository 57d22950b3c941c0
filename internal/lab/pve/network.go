package pve

import (
	"cmp"
	"regexp"
)

// A Network is what cards of guests can join: a bridge of the node's, or a VNet of a zone.
type Network struct {
	Name string
	Zone string // zone of a VNet; empty for a bridge
}

// at is where the right to use the network is held. Bridges count as one zone.
func (n Network) at() string { return "/sdn/zones/" + cmp.Or(n.Zone, "localnetwork") + "/" + n.Name }

// network finds one by its name. What there is not is taken for a bridge, until a guest starts.
func (s *Server) network(name string) (n Network, ok bool) {
	for _, n := range s.config.Networks {
		if n.Name == name {
			return n, true
		}
	}
	return Network{Name: name}, false
}

var (
	bridgeOf = regexp.MustCompile(`(?:^|,)bridge=([^,]+)`)
	tagOf    = regexp.MustCompile(`(?:^|,)tag=(\d+)`)
)

// checkCard refuses networks that the caller may not use.
func (c *call) checkCard(value string) error {
	bridge := bridgeOf.FindStringSubmatch(value)
	if bridge == nil {
		return nil
	}
	n, _ := c.network(bridge[1])
	at := n.at()
	if vlan := tagOf.FindStringSubmatch(value); vlan != nil {
		at += "/" + vlan[1]
	}
	return c.token.need(at, "SDN.Use")
}

// networks answers the bridges and VNets that the caller may use or look at.
func networks(c *call) (any, error) {
	list := []map[string]any{}
	for _, n := range c.config.Networks {
		if c.token.needAny(n.at(), "SDN.Use", "SDN.Audit") != nil {
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
