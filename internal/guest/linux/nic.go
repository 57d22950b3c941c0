package linux

import (
	"cmp"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/guest/tree"
)

// A NIC is a network card as the guest's configuration knows it.
type NIC struct {
	Name      string   `json:"name,omitempty"` // "ens192"; "" where it is known by MAC only
	MAC       string   `json:"mac,omitempty"`  // lower case, where the configuration has it
	Addresses []string `json:"addresses,omitempty"`
	DHCP      bool     `json:"dhcp,omitempty"`
	By        By       `json:"by"`
	File      string   `json:"file"`
}

// By says what ties a configuration to a card.
type By string

const (
	ByMAC  By = "mac"  // stays with the card
	ByName By = "name" // is lost where the card gets another name
	ByAny  By = "any"  // matches whatever card there is
)

// Kept reports whether the configuration still finds its card on other hardware.
func (n NIC) Kept() bool { return n.By != ByName }

// readNICs collects what all the ways to configure a network say.
func (g *Guest) readNICs(t *tree.Tree) {
	for _, way := range []func(*tree.Tree) []NIC{ifupdown, netplan, keyfiles, ifcfg, networkd} {
		g.NICs = append(g.NICs, way(t)...)
	}
	g.NICs = slices.DeleteFunc(g.NICs, func(n NIC) bool { return isVirtual(n.Name) || !n.DHCP && len(n.Addresses) == 0 })
	pinned, old := pins(t), g.oldNames()
	for i := range g.NICs {
		n := &g.NICs[i]
		n.MAC = strings.ToLower(strings.ReplaceAll(n.MAC, "-", ":"))
		mac := pinned[n.Name]
		switch {
		case n.By != "":
		case n.Name == "" || strings.ContainsAny(n.Name, "*?["):
			n.By = ByAny
		case mac != "":
			n.By, n.MAC = ByMAC, mac
		case old && strings.HasPrefix(n.Name, "eth"):
			n.By = ByAny // counted from eth0, as before
		default:
			n.By = ByName
		}
	}
}

// isVirtual reports names that no card has: the loopback, bridges, bonds, tunnels, VLANs.
func isVirtual(name string) bool {
	if name == "lo" || strings.ContainsAny(name, ".:@") {
		return true
	}
	for _, prefix := range []string{"br", "bond", "team", "tun", "tap", "wg", "docker", "virbr", "veth", "vlan", "dummy"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// pins returns names that systemd's links or udev's rules tie to a MAC.
func pins(t *tree.Tree) map[string]string {
	pinned := map[string]string{}
	for _, file := range files(t, "etc/systemd/network/*.link") {
		var mac, name string
		for _, a := range assignments(read(t, file)) {
			switch a.section + "." + a.key {
			case "match.MACAddress", "match.PermanentMACAddress":
				mac = a.value
			case "link.Name":
				name = a.value
			}
		}
		if mac != "" && name != "" {
			pinned[name] = strings.ToLower(mac)
		}
	}
	for _, file := range files(t, "etc/udev/rules.d/*.rules") {
		for line := range strings.Lines(read(t, file)) {
			if mac, name := between(line, `ATTR{address}=="`), between(line, `NAME="`); mac != "" && name != "" {
				pinned[name] = strings.ToLower(mac)
			}
		}
	}
	return pinned
}

// between returns what follows before, up to the next quote, in a line of a udev rule.
func between(line, before string) string {
	_, rest, ok := strings.Cut(line, before)
	if !ok || strings.HasPrefix(strings.TrimSpace(line), "#") {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// ifupdown reads Debian's interfaces(5).
func ifupdown(t *tree.Tree) []NIC {
	var all []NIC
	for _, file := range files(t, "etc/network/interfaces", "etc/network/interfaces.d/*") {
		var n *NIC
		for line := range strings.Lines(read(t, file)) {
			f := strings.Fields(line)
			switch {
			case len(f) >= 4 && f[0] == "iface":
				all = append(all, NIC{Name: f[1], File: file, DHCP: f[3] == "dhcp" || f[3] == "auto"})
				n = &all[len(all)-1]
			case len(f) >= 1 && slices.Contains([]string{"auto", "mapping", "source", "source-directory"}, f[0]), len(f) >= 1 && strings.HasPrefix(f[0], "allow-"):
				n = nil
			case len(f) >= 2 && n != nil && f[0] == "address":
				n.Addresses = append(n.Addresses, f[1])
			case len(f) >= 2 && n != nil && f[0] == "netmask":
				n.mask(f[1])
			}
		}
	}
	return all
}

// mask adds a netmask to the last address, if that has none.
func (n *NIC) mask(mask string) {
	if len(n.Addresses) == 0 || mask == "" {
		return
	}
	last := &n.Addresses[len(n.Addresses)-1]
	m, err := netip.ParseAddr(mask)
	if strings.Contains(*last, "/") || err == nil && !m.Is4() {
		return
	}
	bits := mask
	if err == nil {
		ones := 0
		for _, b := range m.As4() {
			for ; b&0x80 != 0; b <<= 1 {
				ones++
			}
		}
		bits = strconv.Itoa(ones)
	}
	*last += "/" + bits
}

// keyfiles reads NetworkManager's connections.
func keyfiles(t *tree.Tree) []NIC {
	var all []NIC
	for _, file := range files(t, "etc/NetworkManager/system-connections/*", "usr/lib/NetworkManager/system-connections/*") {
		n, kind := NIC{File: file}, ""
		for _, a := range assignments(read(t, file)) {
			switch section := a.section; {
			case section == "connection" && a.key == "interface-name":
				n.Name = a.value
			case section == "connection" && a.key == "type":
				kind = a.value
			case strings.HasSuffix(section, "ethernet") && a.key == "mac-address":
				n.MAC, n.By = a.value, ByMAC
			case (section == "ipv4" || section == "ipv6") && strings.HasPrefix(a.key, "address") && a.key != "address-data":
				address, _, _ := strings.Cut(a.value, ",")
				n.Addresses = append(n.Addresses, address)
			case section == "ipv4" && a.key == "method":
				n.DHCP = a.value == "auto"
			}
		}
		if strings.HasSuffix(kind, "ethernet") {
			all = append(all, n)
		}
	}
	return all
}

// ifcfg reads the files of RHEL's and SUSE's network scripts.
func ifcfg(t *tree.Tree) []NIC {
	var all []NIC
	for _, file := range files(t, "etc/sysconfig/network-scripts/ifcfg-*", "etc/sysconfig/network/ifcfg-*") {
		n := NIC{File: file}
		prefix := ""
		for _, a := range assignments(read(t, file)) {
			switch key := strings.TrimRight(a.key, "0123456789"); key {
			case "DEVICE":
				n.Name = a.value
			case "HWADDR":
				n.MAC, n.By = a.value, ByMAC
			case "IPADDR":
				n.Addresses = append(n.Addresses, a.value)
			case "PREFIX", "NETMASK", "PREFIXLEN":
				prefix = cmp.Or(prefix, a.value)
			case "BOOTPROTO":
				n.DHCP = strings.HasPrefix(a.value, "dhcp")
			}
		}
		n.mask(prefix)
		if n.Name == "" && n.By == "" {
			n.Name = strings.TrimPrefix(path.Base(file), "ifcfg-")
		}
		all = append(all, n)
	}
	return all
}

// networkd reads systemd-networkd's networks.
func networkd(t *tree.Tree) []NIC {
	var all []NIC
	for _, file := range files(t, "etc/systemd/network/*.network") {
		n := NIC{File: file}
		for _, a := range assignments(read(t, file)) {
			switch a.section + "." + a.key {
			case "match.Name":
				n.Name = a.value
			case "match.MACAddress", "match.PermanentMACAddress":
				n.MAC, n.By = a.value, ByMAC
			case "network.Address", "address.Address":
				n.Addresses = append(n.Addresses, a.value)
			case "network.DHCP":
				n.DHCP = a.value != "no" && a.value != "false"
			}
		}
		all = append(all, n)
	}
	return all
}
