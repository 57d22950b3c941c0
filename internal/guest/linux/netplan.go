package linux

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/decamp/decamp/internal/guest/tree"
)

// plannedNIC is one of netplan's ethernets, as far as it matters here.
type plannedNIC struct {
	Match struct {
		MAC  string `yaml:"macaddress"`
		Name string `yaml:"name"`
	} `yaml:"match"`
	SetName   string      `yaml:"set-name"`
	DHCP4     any         `yaml:"dhcp4"`
	DHCP6     any         `yaml:"dhcp6"`
	Addresses []yaml.Node `yaml:"addresses"`
}

// netplan reads Ubuntu's netplan. A file that is no YAML has no cards.
func netplan(t *tree.Tree) []NIC {
	var all []NIC
	for _, file := range files(t, "etc/netplan/*.yaml", "etc/netplan/*.yml") {
		var plan struct {
			Network struct {
				Ethernets map[string]plannedNIC `yaml:"ethernets"`
			} `yaml:"network"`
		}
		if err := yaml.Unmarshal([]byte(read(t, file)), &plan); err != nil {
			continue
		}
		var found []NIC
		for id, p := range plan.Network.Ethernets {
			found = append(found, p.nic(id, file))
		}
		slices.SortFunc(found, func(a, b NIC) int { return strings.Compare(a.Name+a.MAC, b.Name+b.MAC) })
		all = append(all, found...)
	}
	return all
}

// nic makes a NIC of one. Its id is the card's name where there is no match.
func (p plannedNIC) nic(id, file string) NIC {
	n := NIC{Name: id, File: file, DHCP: isTrue(p.DHCP4) || isTrue(p.DHCP6)}
	switch {
	case p.Match.MAC != "":
		n.By, n.MAC, n.Name = ByMAC, p.Match.MAC, p.SetName
		if n.Name == "" {
			n.Name = id
		}
	case p.Match.Name != "":
		n.Name = p.Match.Name
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

func isTrue(v any) bool { return v == true || v == "yes" || v == "true" }
