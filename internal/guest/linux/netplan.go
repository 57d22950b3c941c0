package linux

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A netplanNIC contains the relevant keys of an ethernet in netplan.
type netplanNIC struct {
	// properties that select the card; empty if the ID is its name
	Match struct {
		MAC    string    `yaml:"macaddress"` // MAC of the card
		Name   string    `yaml:"name"`       // pattern of the name
		Driver yaml.Node `yaml:"driver"`     // pattern of the driver, or a list of patterns
	} `yaml:"match"`
	SetName   string      `yaml:"set-name"`  // name that the card gets
	DHCP4     any         `yaml:"dhcp4"`     // a boolean, or a text such as "yes"
	DHCP6     any         `yaml:"dhcp6"`     // same as DHCP4
	Addresses []yaml.Node `yaml:"addresses"` // texts, or maps with an address as key
}

// A virtualInterface is a bridge, bond or VLAN of netplan.
type virtualInterface struct {
	Interfaces []string `yaml:"interfaces"` // IDs of the ports of a bridge or bond
	Link       string   `yaml:"link"`       // ID of the card below a VLAN
}

// readNetplan returns the cards in Ubuntu's netplan. It ignores invalid files.
func readNetplan(t *files) []NIC {
	var all []NIC
	for _, file := range globFiles(t, "etc/netplan/*.yaml", "etc/netplan/*.yml") {
		var plan struct {
			Network struct {
				Ethernets map[string]netplanNIC       `yaml:"ethernets"`
				Bonds     map[string]virtualInterface `yaml:"bonds"`
				Bridges   map[string]virtualInterface `yaml:"bridges"`
				VLANs     map[string]virtualInterface `yaml:"vlans"`
			} `yaml:"network"`
		}
		text := readConfig(t, file)
		if t.budget.Step(int64(len(text))) != nil { // YAML costs more than lines
			break
		}
		if err := yaml.Unmarshal([]byte(text), &plan); err != nil {
			continue
		}
		// Maps have no order, so the cards are sorted by name and MAC.
		var found []NIC
		above := interfacesByPort(plan.Network.Bonds, plan.Network.Bridges, plan.Network.VLANs)
		for _, id := range slices.Sorted(maps.Keys(plan.Network.Ethernets)) {
			n := plan.Network.Ethernets[id].toNIC(id, file)
			n.Under = above[id]
			found = append(found, n)
		}
		slices.SortStableFunc(found, func(a, b NIC) int { return strings.Compare(a.Name+a.MAC, b.Name+b.MAC) })
		all = append(all, found...)
	}
	return all
}

// interfacesByPort returns the virtual interfaces on top of each ID.
func interfacesByPort(kinds ...map[string]virtualInterface) map[string][]string {
	above := map[string][]string{}
	for _, kind := range kinds {
		for _, id := range slices.Sorted(maps.Keys(kind)) {
			for _, port := range append(kind[id].Interfaces, kind[id].Link) {
				above[port] = append(above[port], id)
			}
		}
	}
	return above
}

// toNIC converts an ethernet. Its id is the card's name if there is no match.
func (p netplanNIC) toNIC(id, file string) NIC {
	n := NIC{Name: id, File: file, DHCP: isTrue(p.DHCP4) || isTrue(p.DHCP6)}
	if driver := p.matchedDriver(); driver != "" {
		n.Match = "driver " + driver
	}
	switch {
	// With a match the ID is arbitrary and not the name of the card.
	case p.Match.MAC != "":
		n.By, n.MAC, n.Name = ByMAC, p.Match.MAC, p.SetName
	case p.Match.Name != "":
		n.Name = cmp.Or(p.SetName, p.Match.Name)
	case n.Match != "":
		n.Name = p.SetName
	}
	for _, a := range p.Addresses {
		if a.Kind == yaml.ScalarNode {
			n.Addresses = append(n.Addresses, a.Value)
		} else if len(a.Content) > 0 { // an address with options
			n.Addresses = append(n.Addresses, a.Content[0].Value)
		}
	}
	return n
}

// matchedDriver returns the first driver of a match; empty if the match has none or accepts all.
func (p netplanNIC) matchedDriver() string {
	d := p.Match.Driver
	if d.Kind == yaml.SequenceNode && len(d.Content) > 0 {
		d = *d.Content[0]
	}
	if d.Value == "*" {
		return ""
	}
	return d.Value
}

// isTrue reports whether a YAML value is a boolean or text that means true.
func isTrue(v any) bool { return v == true || v == "yes" || v == "true" }
