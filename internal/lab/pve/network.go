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

// aclPath is where the right to use the network is held. Bridges count as one zone.
func (n Network) aclPath() string {
	return "/sdn/zones/" + cmp.Or(n.Zone, "localnetwork") + "/" + n.Name
}

// findNetwork finds one by its name. What there is not is taken for a bridge, until a guest starts.
func (s *Server) findNetwork(name string) (n Network, ok bool) {
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
	n, _ := c.findNetwork(bridge[1])
	at := n.aclPath()
	if vlan := tagOf.FindStringSubmatch(value); vlan != nil {
		at += "/" + vlan[1]
	}
	return c.token.requireAll(at, "SDN.Use")
}

// listNetworks answers the bridges and VNets that the caller may use or look at.
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
