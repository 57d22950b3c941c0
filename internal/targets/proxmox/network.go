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

// A network is what a card joins: a bridge or a VNet, and on it a VLAN if tag is not 0.
type network struct {
	bridge string
	tag    int
}

// parseNetwork reads BRIDGE or BRIDGE,TAG. In front of it may stand "bridge:", which tells bridges
// from libvirt's networks where a map is for both.
func parseNetwork(s string) (network, error) {
	bridge, vlan, tagged := strings.Cut(strings.TrimPrefix(s, "bridge:"), ",")
	n := network{bridge: bridge}
	var err error
	if tagged {
		n.tag, err = strconv.Atoi(strings.TrimPrefix(vlan, "tag="))
	}
	if err != nil || !isName(bridge) || tagged && (n.tag < 1 || n.tag > 4094) {
		return n, fault.New(fault.Invalid, "%q is no network of Proxmox's", s).WithHint("write BRIDGE or BRIDGE,TAG, such as vmbr0 or vmbr0,20")
	}
	return n, nil
}

// joined is what a map says of a network, with a bridge for where it names none.
func joined(to namemap.Network, bridge string) (network, error) {
	n, err := parseNetwork(cmp.Or(to.To, bridge))
	if err != nil || to.VLAN == 0 {
		return n, err
	}
	if n.tag != 0 && n.tag != to.VLAN {
		return n, fault.New(fault.Invalid, "network %s has the VLAN %d in its name, and %d beside it", to.To, n.tag, to.VLAN).
			WithHint("say it once: {to: %s, vlan: %d}", n.bridge, to.VLAN)
	}
	n.tag = to.VLAN
	return n, nil
}

// network is what a card joins.
func (o Options) network(card inventory.NIC) (network, error) {
	return joined(o.Maps.Network(card.Network), o.Bridge)
}

// networks are those that vm's cards join, in their order.
func (o Options) networks(vm *inventory.VM) ([]network, error) {
	all := make([]network, len(vm.NICs))
	for i, card := range vm.NICs {
		var err error
		if all[i], err = o.network(card); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// path is where the right to use a bridge is held. Bridges of a node count as one zone of Proxmox's
// SDN.
func (n network) path() string {
	path := "/sdn/zones/localnetwork/" + n.bridge
	if n.tag != 0 {
		path += fmt.Sprintf("/%d", n.tag)
	}
	return path
}

// isVNet reports whether a network is of a zone of SDN's: its right is held elsewhere, and it would
// not be listed without.
func isVNet(kind string) bool { return kind != "" && kind != "bridge" && kind != "OVSBridge" }
