package targets

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
)

func TestOutlineListsDroppedHardware(t *testing.T) {
	vm := &inventory.VM{
		Disks:  []inventory.Disk{{Key: 2000, UUID: "6000C29a"}, {Key: 2001, UUID: "6000C29b"}, {Key: 2002}},
		CDROMs: 2, BootOrder: []string{"floppy", "cdrom", "disk:2000"},
	}
	o := NewOutline(Definition{VM: vm})
	o.CDROMs, o.Boot = 1, []string{"disk:2000"}
	o.Disks = []OutlineDisk{{Key: 2000, Serial: "6000C29a"}, {Key: 2001, Bus: "sata"}, {Key: 2002, Bus: "sata"}}
	o.Drop(vm)
	want := []string{
		"the serial number of disk 2001: on sata it is different or missing",
		"CD-ROM drives (1): the target has no free slot for them, or does not support empty drives",
		"booting from floppy: the target does not have it or does not boot from it", "booting from cdrom: the target does not have it or does not boot from it",
	}
	if !slices.Equal(o.Dropped, want) {
		t.Errorf("got %q, want %q", o.Dropped, want)
	}
}
