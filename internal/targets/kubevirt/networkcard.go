package kubevirt

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

func cardKey(n inventory.NIC) string { return fmt.Sprintf("net:%d", n.Key) }

// cards adds the VM's network cards, each with its MAC, and the network it joins.
func (b *builder) cards() error {
	spec := &b.out.vm.Spec.Template.Spec
	if len(b.vm.NICs) == 0 {
		no := false
		spec.Domain.Devices.PodCard = &no
	}
	inPod := ""
	for i, n := range b.vm.NICs {
		x := card{Name: fmt.Sprintf("net%d", i), Model: b.model(n), MAC: n.MAC, BootOrder: b.order[cardKey(n)]}
		if err := joinable(n.Network, b.opts.Maps.Network(n.Network)); err != nil {
			return err
		}
		if n.LinkDown() {
			x.State = "down"
		}
		joined := network{Name: x.Name}
		name, isMultus := strings.CutPrefix(b.network(n), multusPrefix)
		switch {
		case isMultus:
			joined.Multus, x.Bridge = &multus{name}, &empty{}
		case inPod != "":
			return fault.New(fault.Invalid, "network cards %s and %s would both join the pod network, which takes one card of a VM", inPod, n.MAC).
				WithHint("say network=%sNAMESPACE/NAME for all cards, or in a plan file where each network leads: %s", multusPrefix, planned(n))
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

// network is what a card joins.
func (b *builder) network(n inventory.NIC) string {
	return cmp.Or(b.opts.Maps.Network(n.Network).To, b.opts.Network, Pod)
}

func (b *builder) warnOfPod(n inventory.NIC) {
	b.warn("pod-network", "if it has a fixed address, or others look for it there, name a network: network="+multusPrefix+"NAMESPACE/NAME, or in a plan file "+planned(n),
		"network card %s leaves %q for the pod network: the guest has to ask for its address by DHCP, and is behind the pod's", n.MAC, n.Network)
}

// planned is how a plan file says where a card's network leads.
func planned(n inventory.NIC) string {
	return fmt.Sprintf(`maps: {networks: {%q: "%sNAMESPACE/NAME"}}`, n.Network, multusPrefix)
}

// model is the card's kind: what it was where KubeVirt has it.
func (b *builder) model(n inventory.NIC) string {
	if model := b.opts.Maps.Network(n.Network).Model; model != "" {
		return model
	}
	if b.virtio() {
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
