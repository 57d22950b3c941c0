package linux

import (
	"cmp"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A NIC is a network card as the guest's configuration knows it.
type NIC struct {
	Name      string   `json:"name,omitempty"` // "ens192"; "" where it is known by MAC only
	MAC       string   `json:"mac,omitempty"`  // MAC in lower case, if the configuration contains it
	Addresses []string `json:"addresses,omitempty"`
	DHCP      bool     `json:"dhcp,omitempty"`
	By        By       `json:"by"`
	File      string   `json:"file"`

	Match string   `json:"match,omitempty"` // hardware condition: "driver vmxnet3", "path pci-0000:0b:00.0"
	Under []string `json:"under,omitempty"` // interfaces built on it: "br0", "bond0", "ens192.7"
	Maker string   `json:"maker,omitempty"` // "cloud-init", which has written the file and may write it again
}

// By is the property that ties a configuration to a card.
type By string

const (
	ByMAC  By = "mac"  // stays with the card
	ByName By = "name" // is lost where the card gets another name
	ByAny  By = "any"  // matches whatever card there is

	ByHardware By = "hardware" // names a driver or a slot of the bus: finds nothing elsewhere
)

// Kept reports whether the configuration still finds its card on other hardware.
func (n NIC) Kept() bool { return n.By == ByMAC || n.By == ByAny }

// readNICs collects what all the ways to configure a network say.
func (g *Guest) readNICs(t *files) {
	for _, way := range []func(*files) []NIC{ifupdown, netplan, keyfiles, ifcfg, networkd} {
		g.NICs = append(g.NICs, way(t)...)
	}
	if more := len(g.NICs) - maxNICs; more > 0 {
		g.problem("%d network cards are configured, %d of them not examined", len(g.NICs), more)
		g.NICs = g.NICs[:maxNICs]
	}
	above := map[string]bool{}
	for i := range g.NICs {
		g.NICs[i].carry()
		for _, name := range g.NICs[i].Under {
			above[name] = true
		}
	}
	g.NICs = slices.DeleteFunc(g.NICs, func(n NIC) bool {
		return isVirtual(n.Name) || above[n.Name] || !n.DHCP && len(n.Addresses) == 0 && len(n.Under) == 0
	})
	pinned, old := pins(t), g.oldNames()
	byCloudInit := map[string]bool{} // configurations by file
	for i := range g.NICs {
		n := &g.NICs[i]
		n.MAC = strings.ToLower(strings.ReplaceAll(n.MAC, "-", ":"))
		made, known := byCloudInit[n.File]
		if !known {
			made = strings.Contains(read(t, n.File), cloudInit)
			byCloudInit[n.File] = made
		}
		if made {
			n.Maker = cloudInit
		}
		mac := pinned[n.Name]
		switch {
		case n.Match != "" && !strings.Contains(n.Match, "virtio_net"):
			n.By = ByHardware
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

// maxName is how long the kernel lets a name be, in bytes.
const maxName = 15

// cloudInit is named at the head of each file that it has written.
const cloudInit = "cloud-init"

// carry makes of a VLAN or an alias, "ens192.7" or "ens192:0", the card that it is on: its name
// must stay, too.
func (n *NIC) carry() {
	if end := strings.IndexAny(n.Name, ".:@"); end > 0 && len(n.Name) <= maxName && !isVirtual(n.Name[:end]) {
		n.Under = append(n.Under, n.Name)
		n.Name, n.By, n.Match = n.Name[:end], "", ""
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
func pins(t *files) map[string]string {
	pinned := map[string]string{}
	for _, file := range glob(t, "etc/systemd/network/*.link") {
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
	for _, file := range glob(t, "etc/udev/rules.d/*.rules") {
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
func ifupdown(t *files) []NIC {
	var all []NIC
	for _, file := range glob(t, "etc/network/interfaces", "etc/network/interfaces.d/*") {
		var n *NIC
		for line := range strings.Lines(read(t, file)) {
			if len(all) > maxNICs { // looking one up takes as long as there are many
				return all
			}
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
			case len(f) >= 2 && n != nil && slices.Contains(portWords(), f[0]):
				above := n.Name
				all = append(all, on(above, f[1:], file)...)
				n = &all[slices.IndexFunc(all, func(n NIC) bool { return n.File == file && n.Name == above })]
			}
		}
	}
	return all
}

// portWords are those of interfaces(5) and its plugins that name the cards below.
func portWords() []string {
	return []string{"bridge_ports", "bridge-ports", "bond-slaves", "slaves", "vlan-raw-device", "vlan_raw_device"}
}

// on are the cards of those names that something is built on.
func on(above string, names []string, file string) (all []NIC) {
	for _, name := range names {
		if name != "none" && name != "all" && name != "regex" {
			all = append(all, NIC{Name: name, Under: []string{above}, File: file})
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
func keyfiles(t *files) []NIC {
	var all []NIC
	for _, file := range glob(t, "etc/NetworkManager/system-connections/*", "usr/lib/NetworkManager/system-connections/*") {
		n, kind, parent := NIC{File: file}, "", ""
		for _, a := range assignments(read(t, file)) {
			switch section := a.section; {
			case (section == "connection" || section == "match") && a.key == "interface-name":
				n.Name = cmp.Or(n.Name, strings.Trim(a.value, "; "))
			case section == "match" && (a.key == "driver" || a.key == "path"):
				n.Match = cmp.Or(n.Match, a.key+" "+strings.Trim(a.value, "; "))
			case section == "connection" && (a.key == "master" || a.key == "controller"):
				n.Under = []string{a.value}
			case section == "vlan" && a.key == "parent":
				parent = a.value
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
		switch {
		case strings.HasSuffix(kind, "ethernet"):
			all = append(all, n)
		case parent != "" && !strings.Contains(parent, "-"): // else another connection's UUID
			all = append(all, on(n.Name, []string{parent}, file)...)
		}
	}
	return all
}

// ifcfg reads the files of RHEL's and SUSE's network scripts.
func ifcfg(t *files) []NIC {
	var all []NIC
	for _, file := range glob(t, "etc/sysconfig/network-scripts/ifcfg-*", "etc/sysconfig/network/ifcfg-*") {
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
			case "MASTER", "BRIDGE", "TEAM_MASTER":
				if a.value != "" && a.value != "yes" && a.value != "no" {
					n.Under = append(n.Under, a.value)
				}
			case "PHYSDEV", "ETHERDEVICE", "BRIDGE_PORTS", "BONDING_SLAVE", "BONDING_SLAVE_":
				all = append(all, on(strings.TrimPrefix(path.Base(file), "ifcfg-"), strings.Fields(a.value), file)...)
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
func networkd(t *files) []NIC {
	var all []NIC
	for _, file := range glob(t, "etc/systemd/network/*.network") {
		n := NIC{File: file}
		for _, a := range assignments(read(t, file)) {
			switch a.section + "." + a.key {
			case "match.Name":
				n.Name = a.value
			case "match.MACAddress", "match.PermanentMACAddress":
				n.MAC, n.By = a.value, ByMAC
			case "match.Driver", "match.Path":
				n.Match = cmp.Or(n.Match, strings.ToLower(a.key)+" "+a.value)
			case "network.Bridge", "network.Bond", "network.VLAN", "network.MACVLAN", "network.IPVLAN":
				n.Under = append(n.Under, a.value)
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
