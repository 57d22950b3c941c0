package migrate

import (
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// sameDisks compares what a copy depends on. A difference is a Conflict.
func sameDisks(was, is *inventory.VM) error {
	changed := func(what string, a, b any) error {
		return fault.New(fault.Conflict, "VM %s was changed since this run began: %s was %v, is %v", is.Name, what, a, b).
			WithHint("change it back, or give this run up with --discard and begin again")
	}
	switch {
	case was.UUID != is.UUID:
		return changed("its UUID", was.UUID, is.UUID)
	case was.InstanceUUID != is.InstanceUUID:
		return changed("its instance UUID", was.InstanceUUID, is.InstanceUUID)
	case len(was.Disks) != len(is.Disks):
		return changed("the number of its disks", len(was.Disks), len(is.Disks))
	}
	for i, a := range was.Disks {
		if b := is.Disks[i]; identityOf(a) != identityOf(b) {
			return changed("disk "+fmt.Sprint(a.Key), identityOf(a), identityOf(b))
		}
	}
	return nil
}

// diskIdentity is what makes a disk another disk.
type diskIdentity struct {
	Key      int32
	Path     inventory.Path
	Capacity int64
	UUID     string
	ChangeID inventory.ChangeID // moves with every write where change tracking is on
}

func identityOf(d inventory.Disk) diskIdentity {
	return diskIdentity{d.Key, d.Path, d.Capacity, d.UUID, d.ChangeID}
}

// SameShape is sameDisks for a VM that runs: its files and moments change with snapshots.
func SameShape(was, is *inventory.VM) error {
	strip := func(vm *inventory.VM) *inventory.VM {
		c := *vm
		c.Disks = make([]inventory.Disk, len(vm.Disks))
		for i, d := range vm.Disks {
			c.Disks[i] = inventory.Disk{Key: d.Key, Capacity: d.Capacity, UUID: d.UUID}
		}
		return &c
	}
	return sameDisks(strip(was), strip(is))
}

// Larger returns the disks that have more bytes in is than they had, by key: how many they had.
func Larger(was, is *inventory.VM) map[int32]int64 {
	grown := map[int32]int64{}
	for _, d := range was.Disks {
		if now, ok := is.Disk(d.Key); ok && now.Capacity > d.Capacity {
			grown[d.Key] = d.Capacity
		}
	}
	return grown
}

// GrownTo returns was with the larger disks of is. Their change IDs are those of is as well: all of
// these disks will be compared.
func GrownTo(was, is *inventory.VM) *inventory.VM {
	vm := *was
	vm.Disks = slices.Clone(was.Disks)
	grown := Larger(was, is)
	for i := range vm.Disks {
		d := &vm.Disks[i]
		if _, grew := grown[d.Key]; !grew {
			continue
		}
		now, _ := is.Disk(d.Key)
		d.Capacity, d.Used, d.ChangeID = now.Capacity, now.Used, now.ChangeID
	}
	return &vm
}
