package inventory

import (
	"slices"
	"testing"
)

// The slots are those of a VM with ten network cards, and the names are those of Linux on ESXi 7.
func TestSlots(t *testing.T) {
	for _, want := range []struct {
		slot int
		pci  string
		name string
	}{
		{33, "0000:02:01.0", "ens33"}, {160, "0000:03:00.0", "ens160"}, {192, "0000:0b:00.0", "ens192"}, {224, "0000:13:00.0", "ens224"},
		{256, "0000:1b:00.0", "ens256"}, {1184, "0000:04:00.0", "ens161"}, {1216, "0000:0c:00.0", "ens193"}, {2208, "0000:05:00.0", "ens162"},
		{16, "", "ens16"}, {1 << 13, "", ""},
	} {
		n := NIC{PCISlot: want.slot}
		if got := n.PCIAddress(); got != want.pci {
			t.Errorf("slot %d: address %q, want %q", want.slot, got, want.pci)
		}
		if got := n.SlotNames(); want.name != "" && !slices.Contains(got, want.name) {
			t.Errorf("slot %d: names %q, want %q", want.slot, got, want.name)
		}
	}
	if n := (NIC{}); n.PCIAddress() != "" || n.SlotNames() != nil {
		t.Error("a network card without a slot has an address or a name")
	}
}

func TestCompareByBus(t *testing.T) {
	cards := []NIC{{PCISlot: 192}, {PCISlot: 224}, {PCISlot: 1184}, {PCISlot: 33}, {PCISlot: 1216}}
	slices.SortStableFunc(cards, CompareByBus)
	var got []int
	for _, c := range cards {
		got = append(got, c.PCISlot)
	}
	if want := []int{33, 1184, 192, 1216, 224}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// DisksInGuestOrder sorts disks by controller and unit, not by the order of vSphere.
func TestDisksInGuestOrder(t *testing.T) {
	vm := &VM{
		Controllers: []Controller{{Key: 1001}, {Key: 1000}},
		Disks:       []Disk{{Key: 1, Controller: 1000}, {Key: 2, Controller: 1001, Unit: 1}, {Key: 3, Controller: 1001}},
	}
	if got := vm.DisksInGuestOrder(); !slices.Equal(got, []int{2, 1, 0}) {
		t.Errorf("got %v", got)
	}
}
