package linux

import (
	"cmp"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A NIC is a network card according to the guest's configuration.
type NIC struct {
	Name      string   `json:"name,omitempty"`      // name: "ens192"; empty if only the MAC is known
	MAC       string   `json:"mac,omitempty"`       // MAC in lower case, if the configuration contains it
	Addresses []string `json:"addresses,omitempty"` // static addresses, with prefix length if configured
	DHCP      bool     `json:"dhcp,omitempty"`      // addresses are obtained by DHCP
	By        By       `json:"by"`                  // property that selects the card
	File      string   `json:"file"`                // configuration file

	Match string   `json:"match,omitempty"` // hardware condition: "driver vmxnet3", "path pci-0000:0b:00.0"
	Under []string `json:"upper,omitempty"` // interfaces on top of the card: "br0", "bond0", "ens192.7"
	// "cloud-init" if that has written the file, because it may write it again; otherwise empty
	Maker string `json:"maker,omitempty"`
}

// By is the property by which a configuration selects its card.
type By string

const (
	ByMAC  By = "mac"  // MAC, which does not change
	ByName By = "name" // name, which depends on the slot
	ByAny  By = "any"  // any card

	ByHardware By = "hardware" // driver or slot, which do not exist at the target
)

// KeepsName reports whether the configuration still selects its card on other hardware.
func (n NIC) KeepsName() bool { return n.By == ByMAC || n.By == ByAny }

// readNICs sets g.NICs from all supported network configurations. It omits virtual interfaces and cards
// without addresses, and determines how each configuration selects its card.
func (g *Guest) readNICs(t *files) {
	for _, way := range []func(*files) []NIC{readIfupdown, readNetplan, readKeyfiles, readIfcfg, readNetworkd} {
		g.NICs = append(g.NICs, way(t)...)
	}
	if more := len(g.NICs) - maxNICs; more > 0 {
		g.addProblem("%d network cards are configured, %d of them not examined", len(g.NICs), more)
		g.NICs = g.NICs[:maxNICs]
	}
	// An interface on top of a card is not a card, even if its name looks like one.
	above := map[string]bool{}
	for i := range g.NICs {
		g.NICs[i].moveToCard()
		for _, name := range g.NICs[i].Under {
			above[name] = true
		}
	}
	g.NICs = slices.DeleteFunc(g.NICs, func(n NIC) bool {
		return isVirtual(n.Name) || above[n.Name] || !n.DHCP && len(n.Addresses) == 0 && len(n.Under) == 0
	})
	// A pinned name selects the card by its MAC, although the configuration contains only the name.
	pinned, old := pinnedNames(t), g.oldNames()
	byCloudInit := map[string]bool{} // configurations by file
	for i := range g.NICs {
		n := &g.NICs[i]
		n.MAC = strings.ToLower(strings.ReplaceAll(n.MAC, "-", ":"))
		// One file may configure many cards; its header is read once.
		made, known := byCloudInit[n.File]
		if !known {
			made = strings.Contains(readConfig(t, n.File), cloudInit)
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
			n.By = ByAny // the kernel counts from eth0, as at the source
		default:
			n.By = ByName
		}
	}
}

// maxName is the maximum length of an interface name in the kernel, in bytes (IFNAMSIZ - 1).
const maxName = 15

// cloudInit occurs in the header of each file that cloud-init has written.
const cloudInit = "cloud-init"

// moveToCard replaces a VLAN or an alias, such as "ens192.7" or "ens192:0", by the card below it,
// whose name must not change either.
func (n *NIC) moveToCard() {
	if end := strings.IndexAny(n.Name, ".:@"); end > 0 && len(n.Name) <= maxName && !isVirtual(n.Name[:end]) {
		n.Under = append(n.Under, n.Name)
		n.Name, n.By, n.Match = n.Name[:end], "", ""
	}
}

// isVirtual reports whether a name belongs to an interface that is not a card: loopback, bridge,
// bond, tunnel, VLAN.
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

// pinnedNames returns the MACs to which systemd's link files or udev's rules bind interface names.
func pinnedNames(t *files) map[string]string {
	pinned := map[string]string{}
	for _, file := range globFiles(t, "etc/systemd/network/*.link") {
		var mac, name string
		for _, a := range parseAssignments(readConfig(t, file)) {
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
	// Rules such as 70-persistent-net.rules contain both properties in one line.
	for _, file := range globFiles(t, "etc/udev/rules.d/*.rules") {
		for line := range strings.Lines(readConfig(t, file)) {
			if mac, name := quotedAfter(line, `ATTR{address}=="`), quotedAfter(line, `NAME="`); mac != "" && name != "" {
				pinned[name] = strings.ToLower(mac)
			}
		}
	}
	return pinned
}

// quotedAfter returns the text between before and the next quote in a line of a udev rule; empty if
// the line is a comment or does not contain before.
func quotedAfter(line, before string) string {
	_, rest, ok := strings.Cut(line, before)
	if !ok || strings.HasPrefix(strings.TrimSpace(line), "#") {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// readIfupdown returns the cards in Debian's interfaces(5).
func readIfupdown(t *files) []NIC {
	var all []NIC
	for _, file := range globFiles(t, "etc/network/interfaces", "etc/network/interfaces.d/*") {
		// n is the interface of the current stanza; nil outside of one.
		var n *NIC
		for line := range strings.Lines(readConfig(t, file)) {
			if len(all) > maxNICs { // searching the list has a quadratic cost
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
				n.addMask(f[1])
			case len(f) >= 2 && n != nil && slices.Contains(portWords(), f[0]):
				// append may move the elements, so n must be set to the same interface in its new location.
				above := n.Name
				all = append(all, portNICs(above, f[1:], file)...)
				n = &all[slices.IndexFunc(all, func(n NIC) bool { return n.File == file && n.Name == above })]
			}
		}
	}
	return all
}

// portWords returns the keywords of interfaces(5) and its plugins that list the cards below an
// interface.
func portWords() []string {
	return []string{"bridge_ports", "bridge-ports", "bond-slaves", "slaves", "vlan-raw-device", "vlan_raw_device"}
}

// portNICs returns the cards with the names as ports of the interface above.
func portNICs(above string, names []string, file string) (all []NIC) {
	for _, name := range names {
		if name != "none" && name != "all" && name != "regex" {
			all = append(all, NIC{Name: name, Under: []string{above}, File: file})
		}
	}
	return all
}

// addMask appends a netmask, as prefix length, to the last address if that has none. mask is a
// length or an IPv4 mask.
func (n *NIC) addMask(mask string) {
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

// readKeyfiles returns the cards in NetworkManager's keyfiles.
func readKeyfiles(t *files) []NIC {
	var all []NIC
	for _, file := range globFiles(t, "etc/NetworkManager/system-connections/*", "usr/lib/NetworkManager/system-connections/*") {
		// parent is the card below a VLAN connection.
		n, kind, parent := NIC{File: file}, "", ""
		for _, a := range parseAssignments(readConfig(t, file)) {
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
		case parent != "" && !strings.Contains(parent, "-"): // otherwise parent is the UUID of another connection
			all = append(all, portNICs(n.Name, []string{parent}, file)...)
		}
	}
	return all
}

// readIfcfg returns the cards in the ifcfg files of RHEL and SUSE.
func readIfcfg(t *files) []NIC {
	var all []NIC
	for _, file := range globFiles(t, "etc/sysconfig/network-scripts/ifcfg-*", "etc/sysconfig/network/ifcfg-*") {
		n := NIC{File: file}
		prefix := ""
		for _, a := range parseAssignments(readConfig(t, file)) {
			// Keys such as IPADDR0 and BONDING_SLAVE_1 end in a number.
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
				all = append(all, portNICs(strings.TrimPrefix(path.Base(file), "ifcfg-"), strings.Fields(a.value), file)...)
			}
		}
		n.addMask(prefix)
		// Without DEVICE and HWADDR the file's name is the name of the card.
		if n.Name == "" && n.By == "" {
			n.Name = strings.TrimPrefix(path.Base(file), "ifcfg-")
		}
		all = append(all, n)
	}
	return all
}

// readNetworkd returns the cards in the network files of systemd-networkd.
func readNetworkd(t *files) []NIC {
	var all []NIC
	for _, file := range globFiles(t, "etc/systemd/network/*.network") {
		n := NIC{File: file}
		for _, a := range parseAssignments(readConfig(t, file)) {
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
