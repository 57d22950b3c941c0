package esx

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// Volumes returns the guest file systems that VMware Tools report, by VM. VMs that are
// off or have no Tools have an empty list. Volumes are not part of the inventory,
// because they make the response for thousands of VMs larger and are rarely needed.
func (s *inventoryReader) Volumes(ctx context.Context, vms []inventory.MoRef) (map[inventory.MoRef][]inventory.Volume, error) {
	all := map[inventory.MoRef][]inventory.Volume{}
	for page := range slices.Chunk(vms, vmPage) {
		if err := s.addVolumes(ctx, page, all); err != nil {
			return nil, fmt.Errorf("read file systems of guests: %w", classify(err))
		}
	}
	return all, nil
}

// addVolumes reads the file systems of one page of VMs and adds them to all.
func (s *inventoryReader) addVolumes(ctx context.Context, vms []inventory.MoRef, all map[inventory.MoRef][]inventory.Volume) error {
	spec := types.PropertyFilterSpec{PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"guest.disk"}}}}
	for _, ref := range vms {
		spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: moRef("VirtualMachine", ref)})
	}
	// VMs that no longer exist make the call fail, like other reads by reference.
	t, err := s.readTree(ctx, spec)
	if err != nil {
		return err
	}
	for _, vm := range t.vms {
		all[inventory.MoRef(vm.Self.Value)] = volumesOf(vm)
	}
	return nil
}

// volumesOf converts the file systems of a VM; nil if it has none.
func volumesOf(vm mo.VirtualMachine) (list []inventory.Volume) {
	if vm.Guest == nil {
		return nil
	}
	for _, d := range vm.Guest.Disk {
		list = append(list, inventory.Volume{Path: d.DiskPath, Capacity: d.Capacity, Free: d.FreeSpace})
	}
	return list
}
