package linux

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// plannedNIC is one of netplan's ethernets, as far as it matters here.
type plannedNIC struct {
	Match struct {
		MAC    string    `yaml:"macaddress"`
		Name   string    `yaml:"name"`
		Driver yaml.Node `yaml:"driver"`
	} `yaml:"match"`
	SetName   string      `yaml:"set-name"`
	DHCP4     any         `yaml:"dhcp4"`
	DHCP6     any         `yaml:"dhcp6"`
	Addresses []yaml.Node `yaml:"addresses"`
}

// builtOn is one of netplan's bridges, bonds or VLANs.
type builtOn struct {
	Interfaces []string `yaml:"interfaces"`
	Link       string   `yaml:"link"`
}

// netplan reads Ubuntu's netplan. A file that is no YAML has no cards.
func netplan(t *files) []NIC {
	var all []NIC
	for _, file := range glob(t, "etc/netplan/*.yaml", "etc/netplan/*.yml") {
		var plan struct {
			Network struct {
				Ethernets map[string]plannedNIC `yaml:"ethernets"`
				Bonds     map[string]builtOn    `yaml:"bonds"`
				Bridges   map[string]builtOn    `yaml:"bridges"`
				VLANs     map[string]builtOn    `yaml:"vlans"`
			} `yaml:"network"`
		}
		text := read(t, file)
		if t.budget.Step(int64(len(text))) != nil { // YAML takes more than lines
			break
		}
		if err := yaml.Unmarshal([]byte(text), &plan); err != nil {
			continue
		}
		var found []NIC
		above := ports(plan.Network.Bonds, plan.Network.Bridges, plan.Network.VLANs)
		for _, id := range slices.Sorted(maps.Keys(plan.Network.Ethernets)) {
			n := plan.Network.Ethernets[id].nic(id, file)
			n.Under = above[id]
			found = append(found, n)
		}
		slices.SortStableFunc(found, func(a, b NIC) int { return strings.Compare(a.Name+a.MAC, b.Name+b.MAC) })
		all = append(all, found...)
	}
	return all
}

// ports returns the interfaces built on each ID.
func ports(kinds ...map[string]builtOn) map[string][]string {
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

// nic makes a NIC of one. Its id is the card's name where there is no match.
func (p plannedNIC) nic(id, file string) NIC {
	n := NIC{Name: id, File: file, DHCP: isTrue(p.DHCP4) || isTrue(p.DHCP6)}
	if driver := p.driver(); driver != "" {
		n.Match = "driver " + driver
	}
	switch {
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

// driver returns the driver or list of drivers of a match; empty if it matches all drivers.
func (p plannedNIC) driver() string {
	d := p.Match.Driver
	if d.Kind == yaml.SequenceNode && len(d.Content) > 0 {
		d = *d.Content[0]
	}
	if d.Value == "*" {
		return ""
	}
	return d.Value
}

func isTrue(v any) bool { return v == true || v == "yes" || v == "true" }
