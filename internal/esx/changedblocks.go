package esx

import (
	"context"
	"fmt"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// Changed calls tell with each area that was written between the state named by since
// and a later state: that of a snapshot or, if snapshot is empty, that of the
// powered-off VM. Areas are clipped to size. The server may include unchanged areas,
// but does not omit changed ones.
//
// fault.Unsupported means that the changes are unknown: the change ID belongs to
// another log (change tracking was reset, or the disk restored), tracking is off, or
// the answer contradicts itself. The caller must then compare the whole disk.
func (s *vmController) Changed(ctx context.Context, vm, snapshot inventory.MoRef, key int32, since inventory.ChangeID, size int64, tell func(disk.Range)) error {
	// "*" would return all allocated areas, and the caller would skip areas that became
	// zero.
	if since == "" || since == inUse {
		return fault.New(fault.Unsupported, "changes of disk %d are asked for since no moment", key).WithHint("compare the whole disk")
	}
	areas, err := s.readChangedAreas(ctx, vm, snapshot, key, since, disk.Range{Len: size})
	if err != nil {
		return fmt.Errorf("changes of disk %d of VM %s: %w", key, vm, mapError(err))
	}
	whole := disk.Range{Len: size}
	for _, a := range areas {
		if a = a.Intersect(whole); !a.Empty() {
			tell(a)
		}
	}
	return nil
}

// DisksAtSnapshot returns the disks of a VM from the configuration of a snapshot. Sizes and
// change IDs are those of the snapshot's point in time. ChangeID is empty without
// change tracking. Fields that need the datastore, such as Used, are not set.
func (s *vmController) DisksAtSnapshot(ctx context.Context, snapshot inventory.MoRef) (disks []inventory.Disk, err error) {
	var at mo.VirtualMachineSnapshot
	if err := s.readProperties(ctx, moRef("VirtualMachineSnapshot", snapshot), &at, "config.hardware.device"); err != nil {
		return nil, fmt.Errorf("read disks of snapshot %s: %w", snapshot, classify(err))
	}
	for _, d := range at.Config.Hardware.Device {
		if disk, ok := d.(*types.VirtualDisk); ok {
			disks = append(disks, (&tree{}).toDisk(disk, nil))
		}
	}
	return disks, nil
}

// ChangeIDs returns the change ID of each disk at a snapshot, by the disk's device key.
// A disk without change tracking is not in the map.
func (s *vmController) ChangeIDs(ctx context.Context, snapshot inventory.MoRef) (map[int32]inventory.ChangeID, error) {
	disks, err := s.DisksAtSnapshot(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	ids := map[int32]inventory.ChangeID{}
	for _, d := range disks {
		if d.ChangeID != "" {
			ids[d.Key] = d.ChangeID
		}
	}
	return ids, nil
}

// TrackChanges turns change tracking of a VM on or off. It takes effect at the next
// power-on, or when the next snapshot is created or removed. If it were turned on while
// the VM has snapshots, later queries would return wrong areas. ESXi 6.5 and later
// permit that, so TrackChanges refuses it with fault.Conflict.
func (s *vmController) TrackChanges(ctx context.Context, vm inventory.MoRef, on bool) error {
	if err := s.trackChanges(ctx, vm, on); err != nil {
		return fmt.Errorf("change tracking of VM %s: %w", vm, classify(err))
	}
	s.cfg.Log.Info("change tracking", "vm", vm, "on", on)
	return nil
}

// trackChanges does nothing if tracking has the wanted state already. A VM whose
// virtual hardware is older than version 7 is fault.Unsupported.
func (s *vmController) trackChanges(ctx context.Context, vm inventory.MoRef, on bool) error {
	ref := moRef("VirtualMachine", vm)
	var v mo.VirtualMachine
	if err := s.readProperties(ctx, ref, &v, "snapshot", "config.changeTrackingEnabled"); err != nil {
		return err
	}
	// A user without the privilege to read the configuration gets nil.
	now := v.Config != nil && v.Config.ChangeTrackingEnabled != nil && *v.Config.ChangeTrackingEnabled
	switch {
	case now == on:
		return nil
	case on && v.Snapshot != nil:
		return fault.New(fault.Conflict, "the VM has snapshots: tracking that begins now would miss the changes in them").WithHint("delete all its snapshots first")
	}
	res, err := methods.ReconfigVM_Task(ctx, s, &types.ReconfigVM_Task{This: ref, Spec: types.VirtualMachineConfigSpec{ChangeTrackingEnabled: &on}})
	if err == nil {
		err = s.followTask(ctx, res.Returnval, nil)
	}
	if _, not := vimFault(err).(*types.NotSupported); not {
		return fault.New(fault.Unsupported, "%w", err).WithHint("upgrade the VM's virtual hardware to version 7 or later; without tracking every round compares all of its disks")
	}
	return err
}
