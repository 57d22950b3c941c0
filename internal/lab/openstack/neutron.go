package openstack

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A port is a Neutron port in the form of the API. Cloud.mu guards its fields.
type port struct {
	ID          string    `json:"id"`             // identifier
	Network     string    `json:"network_id"`     // ID of the network
	Name        string    `json:"name"`           // name, at most 255 characters
	Description string    `json:"description"`    // description, at most 255 characters
	MAC         string    `json:"mac_address"`    // MAC address in lower case
	Up          bool      `json:"admin_state_up"` // administrative state
	Device      string    `json:"device_id"`      // server that uses the port; empty if none
	Status      string    `json:"status"`         // DOWN, or ACTIVE for ports of other users
	Fixed       []fixedIP `json:"fixed_ips"`      // fixed IP addresses
}

// A fixedIP is an address of a port in one subnet.
type fixedIP struct {
	Subnet  string `json:"subnet_id"`  // ID of the subnet
	Address string `json:"ip_address"` // IPv4 address
}

// neutronError writes an error in Neutron's format.
func neutronError(w http.ResponseWriter, status int, kind, message string) {
	writeJSON(w, status, object{"NeutronError": object{"type": kind, "message": message, "detail": ""}})
}

// networkAPI is the networking API of Neutron, version 2.
type networkAPI struct{ *Cloud }

// serve answers a request. path begins after the version. Cloud.mu must be held.
func (c networkAPI) serve(w http.ResponseWriter, r *http.Request, path []string) {
	switch {
	case path[0] == "networks": // GET networks
		all := []object{}
		for _, n := range c.config.Networks {
			all = append(all, object{"id": n.ID, "name": n.Name, "status": "ACTIVE", "admin_state_up": true, "project_id": Project})
		}
		writeJSON(w, http.StatusOK, object{"networks": all})
	case path[0] == "subnets": // GET subnets?network_id=ID
		c.listSubnets(w, r)
	case r.Method == http.MethodPost: // POST ports
		c.createPort(w, r)
	case len(path) == 1: // GET ports
		c.listPorts(w, r)
	case r.Method == http.MethodDelete: // DELETE ports/ID
		if c.ports[path[1]] == nil {
			neutronError(w, http.StatusNotFound, "PortNotFound", notFoundText("Port", path[1]))
			return
		}
		delete(c.ports, path[1])
		w.WriteHeader(http.StatusNoContent)
	}
}

// listSubnets lists the subnet of the network in the query; a network without a CIDR has none.
func (c networkAPI) listSubnets(w http.ResponseWriter, r *http.Request) {
	all := []object{}
	for _, n := range c.config.Networks {
		if n.CIDR != "" && r.URL.Query().Get("network_id") == n.ID {
			all = append(all, object{"id": "sub-" + n.ID, "network_id": n.ID, "cidr": n.CIDR, "ip_version": 4, "enable_dhcp": true})
		}
	}
	writeJSON(w, http.StatusOK, object{"subnets": all})
}

// listPorts lists the ports that match all filters of the query.
func (c networkAPI) listPorts(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	all := []*port{}
	for _, id := range slices.Sorted(maps.Keys(c.ports)) {
		p := c.ports[id]
		fits := true
		for key, value := range map[string]string{"description": p.Description, "network_id": p.Network, "mac_address": p.MAC, "name": p.Name} {
			fits = fits && (q.Get(key) == "" || q.Get(key) == value)
		}
		if fits {
			all = append(all, p)
		}
	}
	writeJSON(w, http.StatusOK, object{"ports": all})
}

// createPort creates a port. Without an address of the client it assigns a MAC of OpenStack's range and
// an IP of the subnet. With Config.Owned only an admin may choose addresses.
func (c networkAPI) createPort(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Port *port }
	if !decodeBody(w, r, &asked) {
		return
	}
	p := asked.Port
	at := slices.IndexFunc(c.config.Networks, func(n Network) bool { return n.ID == p.Network })
	switch {
	case at < 0: // unknown network
		neutronError(w, http.StatusNotFound, "NetworkNotFound", notFoundText("Network", p.Network))
		return
	case len([]rune(p.Name)) > 255 || len([]rune(p.Description)) > 255:
		neutronError(w, http.StatusBadRequest, "HTTPBadRequest", "Invalid input: exceeds maximum length of 255.")
		return
	case c.config.Owned && !c.isAdmin() && (p.MAC != "" || len(p.Fixed) > 0):
		neutronError(w, http.StatusForbidden, "PolicyNotAuthorized", "(rule:create_port and rule:create_port:mac_address) is disallowed by policy")
		return
	}
	p.ID, p.Status, p.MAC = c.newID(), "DOWN", strings.ToLower(p.MAC)
	if p.MAC == "" {
		p.MAC = fmt.Sprintf("fa:16:3e:00:%02x:%02x", c.serial>>8&255, c.serial&255)
	}
	if c.refuseConflict(w, p) {
		return
	}
	c.assignAddress(p, c.config.Networks[at])
	c.ports[p.ID] = p
	writeJSON(w, http.StatusCreated, object{"port": p})
}

// refuseConflict writes an error 409 and returns true if another port of the network has the MAC or an
// IP of p.
func (c networkAPI) refuseConflict(w http.ResponseWriter, p *port) bool {
	for _, other := range c.ports {
		if other.Network != p.Network {
			continue
		}
		if other.MAC == p.MAC {
			neutronError(w, http.StatusConflict, "MacAddressInUse", "Unable to complete operation for network "+p.Network+". The mac address "+p.MAC+" is in use.")
			return true
		}
		for _, f := range p.Fixed {
			if slices.ContainsFunc(other.Fixed, func(o fixedIP) bool { return o.Address == f.Address }) {
				neutronError(w, http.StatusConflict, "IpAddressAlreadyAllocated", "IP address "+f.Address+" already allocated in subnet "+f.Subnet)
				return true
			}
		}
	}
	return false
}

// assignAddress assigns an address of the subnet to a port, unless the client chose one or the network
// has no subnet.
func (c networkAPI) assignAddress(p *port, on Network) {
	if len(p.Fixed) > 0 || on.CIDR == "" {
		return
	}
	a := netip.MustParsePrefix(on.CIDR).Addr()
	for range c.serial + 10 { // the serial makes addresses unique; the first ten stay free
		a = a.Next()
	}
	p.Fixed = []fixedIP{{"sub-" + on.ID, a.String()}}
}

// Port is a copy of a port, for assertions of tests.
type Port struct {
	ID, Network, Name, Description, MAC string   // fields of the API
	Up                                  bool     // administrative state
	Addresses                           []string // fixed IP addresses
}

// Ports returns all ports, sorted by name and ID.
func (c *Cloud) Ports() []Port {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Port
	for _, p := range c.ports {
		one := Port{ID: p.ID, Network: p.Network, Name: p.Name, Description: p.Description, MAC: p.MAC, Up: p.Up}
		for _, f := range p.Fixed {
			one.Addresses = append(one.Addresses, f.Address)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Port) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return all
}

// AddPort creates a port of another user and returns its ID. An empty address assigns none.
func (c *Cloud) AddPort(network, mac, address string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &port{ID: c.newID(), Network: network, Name: "foreign", MAC: mac, Up: true, Status: "ACTIVE"}
	if address != "" {
		p.Fixed = []fixedIP{{"sub-" + network, address}}
	}
	c.ports[p.ID] = p
	return p.ID
}

// RemovePort deletes a port as another user.
func (c *Cloud) RemovePort(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ports, id)
}
