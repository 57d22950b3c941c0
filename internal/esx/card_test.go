package esx

import (
	"testing"

	"github.com/decamp/decamp/internal/inventory"
)

// Network cards are sorted by their bus address. If a slot is unknown, they keep VMware's order.
func TestOrderCards(t *testing.T) {
	cards := []inventory.NIC{{Key: 4000, PCISlot: 192}, {Key: 4001, PCISlot: 224}, {Key: 4002, PCISlot: 1184}}
	orderCards(cards)
	if cards[0].Key != 4002 || cards[1].Key != 4000 || cards[2].Key != 4001 {
		t.Errorf("by bus: %+v", cards)
	}
	cards = []inventory.NIC{{Key: 4000, PCISlot: 192}, {Key: 4001}, {Key: 4002, PCISlot: 160}}
	orderCards(cards)
	if cards[0].Key != 4000 || cards[2].Key != 4002 {
		t.Errorf("with an unknown slot: %+v", cards)
	}
}
