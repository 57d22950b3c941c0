package proxmox

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// addCards adds all network cards, with their MACs and link states.
func (b *builder) addCards() error {
	for i, card := range b.vm.NICs {
		if i == 32 {
			return fault.New(fault.Unsupported, "VM %s has %d network cards, Proxmox supports 32", b.vm.Name, len(b.vm.NICs)).
				WithHint("remove the other cards in vSphere")
		}
		n, err := b.opts.cardNetwork(card)
		if err != nil {
			return err
		}
		value := b.cardModel(card)
		if card.MAC != "" { // else Proxmox chooses one
			value += "=" + strings.ToUpper(card.MAC)
		}
		value += ",bridge=" + n.bridge
		if n.tag != 0 {
			value += fmt.Sprintf(",tag=%d", n.tag)
		}
		if card.LinkDown() {
			value += ",link_down=1"
		}
		slot := fmt.Sprintf("net%d", i)
		b.addParam(slot, value)
		b.slots[fmt.Sprintf("net:%d", card.Key)] = slot
	}
	return nil
}

// cardModel returns the card's model at the target: the mapped one, virtio, or the source's model if
// QEMU has it.
// Otherwise it returns e1000 and adds a warning.
func (b *builder) cardModel(card inventory.NIC) string {
	if model := b.opts.Maps.Network(card.Network).Model; model != "" {
		return model
	}
	if b.hardware.OnVirtio() {
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
