package proxmox

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/target"
)

// A network is what a card joins: a bridge, and on it a VLAN if tag is not 0.
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

// network is what a card joins. Options were checked.
func (o Options) network(card inventory.NIC) network {
	n, _ := parseNetwork(cmp.Or(o.Networks[card.Network], o.Bridge))
	return n
}

// path is where the right to use it is held. Bridges of a node count as one zone of Proxmox's SDN.
func (n network) path() string {
	path := "/sdn/zones/localnetwork/" + n.bridge
	if n.tag != 0 {
		path += fmt.Sprintf("/%d", n.tag)
	}
	return path
}

// cards keeps every card's MAC, and whether its cable is plugged in.
func (b *builder) cards() error {
	for i, card := range b.vm.NICs {
		if i == 32 {
			return fault.New(fault.Unsupported, "VM %s has %d network cards, Proxmox takes 32", b.vm.Name, len(b.vm.NICs)).
				WithHint("remove the other cards in vSphere")
		}
		n := b.opts.network(card)
		value := fmt.Sprintf("%s=%s,bridge=%s", b.cardModel(card), strings.ToUpper(card.MAC), n.bridge)
		if n.tag != 0 {
			value += fmt.Sprintf(",tag=%d", n.tag)
		}
		if !card.StartConnected {
			value += ",link_down=1"
		}
		slot := fmt.Sprintf("net%d", i)
		b.base(slot, value)
		b.slots[fmt.Sprintf("net:%d", card.Key)] = slot
	}
	return nil
}

func (b *builder) cardModel(card inventory.NIC) string {
	if b.hardware == target.Virtio {
		return "virtio"
	}
	same := map[string]string{"vmxnet3": "vmxnet3", "e1000": "e1000", "e1000e": "e1000e", "pcnet32": "pcnet"}
	if model, ok := same[card.Model]; ok {
		return model
	}
	b.warn("nic-model", "check the guest's network configuration after the first boot",
		"network card %s is an e1000: QEMU has no %s", card.MAC, card.Model)
	return "e1000"
}
