package migrate

import (
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// sameDisks compares the properties that a copy depends on. A difference is fault.Conflict.
func (r *Record) sameDisks(was, is *inventory.VM) error {
	changed := func(what string, a, b any) error {
		return fault.New(fault.Conflict, "VM %s changed since this run began: %s was %v and is %v", is.Name, what, a, b).
			WithHint("revert the change; or discard this run with %s, and start again", r.Plan.ID.RollbackCommand())
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

// diskIdentity contains the properties that identify the content of a disk.
type diskIdentity struct {
	Key      int32              // device key of the disk
	Path     inventory.Path     // file on the datastore
	Capacity int64              // size in bytes
	UUID     string             // UUID in the disk's descriptor
	ChangeID inventory.ChangeID // changes with every write if change tracking is on
}

// identityOf returns the identity of d.
func identityOf(d inventory.Disk) diskIdentity {
	return diskIdentity{d.Key, d.Path, d.Capacity, d.UUID, d.ChangeID}
}

// SameShape is sameDisks for a running VM, without files and change IDs: both change with snapshots.
func (r *Record) SameShape(was, is *inventory.VM) error {
	strip := func(vm *inventory.VM) *inventory.VM {
		c := *vm
		c.Disks = make([]inventory.Disk, len(vm.Disks))
		for i, d := range vm.Disks {
			c.Disks[i] = inventory.Disk{Key: d.Key, Capacity: d.Capacity, UUID: d.UUID}
		}
		return &c
	}
	return r.sameDisks(strip(was), strip(is))
}

// GrownDisks returns the disks that are larger in is than in was, by key, with their old sizes in bytes.
func GrownDisks(was, is *inventory.VM) map[int32]int64 {
	grown := map[int32]int64{}
	for _, d := range was.Disks {
		if now, ok := is.Disk(d.Key); ok && now.Capacity > d.Capacity {
			grown[d.Key] = d.Capacity
		}
	}
	return grown
}

// GrownTo returns a copy of was with the larger disks of is. It includes their change IDs, because
// these disks will be compared as a whole.
func GrownTo(was, is *inventory.VM) *inventory.VM {
	vm := *was
	vm.Disks = slices.Clone(was.Disks)
	grown := GrownDisks(was, is)
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
