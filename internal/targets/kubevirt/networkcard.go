package kubevirt

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// cardKey returns the name of a card in inventory.VM.BootOrder.
func cardKey(n inventory.NIC) string { return fmt.Sprintf("net:%d", n.Key) }

// addCards adds the VM's network cards with their MACs and networks.
func (b *builder) addCards() error {
	spec := &b.out.vm.Spec.Template.Spec
	if len(b.vm.NICs) == 0 {
		no := false
		spec.Domain.Devices.PodCard = &no
	}
	inPod := ""
	for i, n := range b.vm.NICs {
		x := card{Name: fmt.Sprintf("net%d", i), Model: b.cardModel(n), MAC: n.MAC, BootOrder: b.order[cardKey(n)]}
		if err := checkNetwork(n.Network, b.opts.Maps.Network(n.Network)); err != nil {
			return err
		}
		if n.LinkDown() {
			x.State = "down"
		}
		joined := network{Name: x.Name}
		name, isMultus := strings.CutPrefix(b.networkOf(n), multusPrefix)
		switch {
		case isMultus:
			joined.Multus, x.Bridge = &multus{name}, &empty{}
		case inPod != "":
			return fault.New(fault.Invalid, "network cards %s and %s are both mapped to the pod network, which accepts one card of a VM", inPod, n.MAC).
				WithHint("use network=%sNAMESPACE/NAME for all cards, or map each network in a plan file: %s", multusPrefix, mapExample(n))
		default:
			inPod = cmp.Or(n.MAC, cardKey(n)) // a card may have no MAC yet
			joined.Pod, x.Masquerade = &empty{}, &empty{}
			b.warnOfPod(n)
		}
		spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces, x)
		spec.Networks = append(spec.Networks, joined)
	}
	return nil
}

// networkOf returns the network of a card: the map's, the default of the options, or Pod.
func (b *builder) networkOf(n inventory.NIC) string {
	return cmp.Or(b.opts.Maps.Network(n.Network).To, b.opts.Network, Pod)
}

// warnOfPod adds the warning that a card joins the pod network, which uses DHCP and NAT.
func (b *builder) warnOfPod(n inventory.NIC) {
	b.warn("pod-network", "if it has a fixed address, or other machines connect to it, set a network: network="+multusPrefix+"NAMESPACE/NAME, or in a plan file "+mapExample(n),
		"network card %s changes from network %q to the pod network: the guest must use DHCP, and other machines see the pod's address", n.MAC, n.Network)
}

// mapExample returns a line for the plan file that maps a card's network.
func mapExample(n inventory.NIC) string {
	return fmt.Sprintf(`maps: {networks: {%q: "%sNAMESPACE/NAME"}}`, n.Network, multusPrefix)
}

// cardModel returns the card's model at the target: the mapped one, virtio, or the source's model if
// KubeVirt has it.
// Otherwise it returns e1000e and adds a warning.
func (b *builder) cardModel(n inventory.NIC) string {
	if model := b.opts.Maps.Network(n.Network).Model; model != "" {
		return model
	}
	if b.usesVirtio() {
		return "virtio"
	}
	same := map[string]string{"e1000": "e1000", "e1000e": "e1000e", "pcnet32": "pcnet"}
	if model, ok := same[n.Model]; ok {
		return model
	}
	b.warn("nic-model", "check the guest's network configuration after the first boot",
		"network card %s is an e1000e: KubeVirt has no %s", n.MAC, cmp.Or(n.Model, "card of that kind"))
	return "e1000e"
}
