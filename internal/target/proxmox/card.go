package proxmox

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/target"
)

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
