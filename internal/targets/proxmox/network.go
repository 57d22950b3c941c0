package proxmox

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
)

// network is the network of a card.
type network struct {
	bridge string // name of a bridge or VNet
	tag    int    // VLAN ID; zero for untagged frames
}

// parseNetwork parses BRIDGE or BRIDGE,TAG. The prefix "bridge:" is ignored, so that a map for libvirt
// can be reused.
func parseNetwork(s string) (network, error) {
	bridge, vlan, tagged := strings.Cut(strings.TrimPrefix(s, "bridge:"), ",")
	n := network{bridge: bridge}
	var err error
	if tagged {
		n.tag, err = strconv.Atoi(strings.TrimPrefix(vlan, "tag="))
	}
	if err != nil || !isName(bridge) || tagged && (n.tag < 1 || n.tag > 4094) {
		return n, fault.New(fault.Invalid, "%q is not a valid network of Proxmox", s).WithHint("write BRIDGE or BRIDGE,TAG, such as vmbr0 or vmbr0,20")
	}
	return n, nil
}

// mappedNetwork returns the network in a map's entry. If the entry names no network, bridge is used.
func mappedNetwork(to namemap.Network, bridge string) (network, error) {
	n, err := parseNetwork(cmp.Or(to.To, bridge))
	if err != nil || to.VLAN == 0 {
		return n, err
	}
	if n.tag != 0 && n.tag != to.VLAN {
		return n, fault.New(fault.Invalid, "network %s has the VLAN %d in its name, and %d in the map", to.To, n.tag, to.VLAN).
			WithHint("set one VLAN: {to: %s, vlan: %d}", n.bridge, to.VLAN)
	}
	n.tag = to.VLAN
	return n, nil
}

// cardNetwork returns the network of a card.
func (o Options) cardNetwork(card inventory.NIC) (network, error) {
	return mappedNetwork(o.Maps.Network(card.Network), o.Bridge)
}

// cardNetworks returns the network of each card, in the order of vm.NICs.
func (o Options) cardNetworks(vm *inventory.VM) ([]network, error) {
	all := make([]network, len(vm.NICs))
	for i, card := range vm.NICs {
		var err error
		if all[i], err = o.cardNetwork(card); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// permissionPath returns the path of the privilege SDN.Use for a bridge. All bridges of a node belong
// to the zone
// localnetwork.
func (n network) permissionPath() string {
	path := "/sdn/zones/localnetwork/" + n.bridge
	if n.tag != 0 {
		path += fmt.Sprintf("/%d", n.tag)
	}
	return path
}

// isVNet reports whether a network belongs to an SDN zone. Its privilege is not checked, because the
// node lists only VNets
// that the token may use.
func isVNet(kind string) bool { return kind != "" && kind != "bridge" && kind != "OVSBridge" }
