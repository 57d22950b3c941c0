package vsphere

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// A snapshotState is a snapshot of a machine. Snapshot n froze link n of each disk's chain; the next
// link is the delta that it created.
type snapshotState struct {
	ref    types.ManagedObjectReference // snapshot in the API; zero if it was removed and its delta must be consolidated
	name   string                       // name of the snapshot
	epochs map[*vdisk]epochMark         // state of the change logs when it was taken
}

// An epochMark is a position in a disk's change log.
type epochMark struct {
	epoch int64 // epoch that ended
	log   int   // log of the epoch
	on    bool  // whether changes were tracked
}

// syncChains makes the disks' chains agree with the snapshot tree. It supports chains without branches,
// because nothing reverts to a snapshot. The VM's lock must be held.
func (m *machine) syncChains(l *Lab, vm *mo.VirtualMachine) {
	tree := snapshotsOf(vm.Snapshot)
	m.writing.Lock()
	defer m.writing.Unlock()
	for i := len(m.snaps) - 1; i >= 0; i-- {
		ref := m.snaps[i].ref
		if ref.Value != "" && !slices.ContainsFunc(tree, func(s types.VirtualMachineSnapshotTree) bool { return s.Snapshot == ref }) {
			m.dropSnapshot(l, vm, i)
		}
	}
	for _, s := range tree {
		if !slices.ContainsFunc(m.snaps, func(have *snapshotState) bool { return have.ref == s.Snapshot }) {
			m.addSnapshot(l, vm, s)
		}
	}
	m.leaveDelta = false
	m.showBackings(vm)
	m.setLayout(vm)
}

// snapshotsOf returns the snapshots of a tree, parents first.
func snapshotsOf(info *types.VirtualMachineSnapshotInfo) (all []types.VirtualMachineSnapshotTree) {
	if info == nil {
		return nil
	}
	var walk func([]types.VirtualMachineSnapshotTree)
	walk = func(list []types.VirtualMachineSnapshotTree) {
		for _, s := range list {
			all = append(all, s)
			walk(s.ChildSnapshotList)
		}
	}
	walk(info.RootSnapshotList)
	return all
}

// addSnapshot freezes the last link of each disk and adds a delta. The locks of the VM and writing must
// be held.
func (m *machine) addSnapshot(l *Lab, vm *mo.VirtualMachine, s types.VirtualMachineSnapshotTree) {
	added := &snapshotState{ref: s.Snapshot, name: s.Name, epochs: map[*vdisk]epochMark{}}
	wanted := vm.Config.ChangeTrackingEnabled != nil && *vm.Config.ChangeTrackingEnabled
	for _, d := range m.disks {
		if !isSnapshotted(d.spec) {
			continue
		}
		d.changes.reopenDisk(wanted, len(m.snaps) > 0)
		_, log, on := d.changes.currentEpoch()
		added.epochs[d] = epochMark{d.changes.endEpoch(), log, on}
		m.showFrozen(l, s.Snapshot, d, added.epochs[d])
		if err := d.addDelta(); err != nil {
			l.cfg.Log.Error("write delta", "vm", m.spec.Name, "err", err)
		}
	}
	m.snaps = append(m.snaps, added)
}

// showFrozen sets the frozen link, its size and its change ID in the snapshot's configuration. The
// simulator copied the VM's before a change of tracking took effect.
func (m *machine) showFrozen(l *Lab, ref types.ManagedObjectReference, d *vdisk, at epochMark) {
	s, ok := l.model.Map().Get(ref).(*simulator.VirtualMachineSnapshot)
	if !ok {
		return
	}
	id := ""
	if at.on {
		id = d.idAt(at.log, at.epoch)
	}
	for _, dev := range s.Config.Hardware.Device {
		if dev.GetVirtualDevice().Key == d.key {
			dev.GetVirtualDevice().Backing = d.backingWith(d.lastLink(), id)
			if disk, ok := dev.(*types.VirtualDisk); ok {
				disk.CapacityInBytes = d.size.Load()
				disk.CapacityInKB = disk.CapacityInBytes / growUnit
			}
		}
	}
}

// dropSnapshot merges the delta of removed snapshot i into the link below. If leaveDelta is set, the
// delta remains and consolidation is needed.
func (m *machine) dropSnapshot(l *Lab, vm *mo.VirtualMachine, i int) {
	if m.leaveDelta {
		m.snaps[i].ref = types.ManagedObjectReference{}
		vm.Runtime.ConsolidationNeeded = true // clients see that the delta remains
		return
	}
	m.mergeSnapshot(l, vm, i)
}

// mergeSnapshot merges the delta of snapshot i on each disk. An error is logged only.
func (m *machine) mergeSnapshot(l *Lab, vm *mo.VirtualMachine, i int) {
	m.snaps = slices.Delete(m.snaps, i, i+1)
	wanted := vm.Config.ChangeTrackingEnabled != nil && *vm.Config.ChangeTrackingEnabled
	for _, d := range m.disks {
		if !isSnapshotted(d.spec) {
			continue
		}
		if err := d.mergeLink(i + 1); err != nil {
			l.cfg.Log.Error("merge delta", "vm", m.spec.Name, "err", err)
		}
		d.changes.reopenDisk(wanted, len(m.snaps) > 0)
	}
}

// showBackings sets the disks' active links in the VM's configuration.
func (m *machine) showBackings(vm *mo.VirtualMachine) {
	for _, dev := range vm.Config.Hardware.Device {
		if d := m.findDisk(dev.GetVirtualDevice().Key); d != nil { // other devices keep their backing
			dev.GetVirtualDevice().Backing = d.linkBacking(d.lastLink())
		}
	}
}

// addDelta adds a delta after the last link. As on real hosts, its number is the lowest free one, so
// that names are reused.
func (d *vdisk) addDelta() error {
	links := d.currentLinks()
	number := 1
	for slices.ContainsFunc(links, func(k chainLink) bool { return k.name == d.deltaName(number) }) {
		number++
	}
	name := d.deltaName(number)
	stem, suffix := strings.TrimSuffix(name, ".vmdk"), "-delta.vmdk" // NFS keeps vmfsSparse; VMFS6 always makes seSparse
	if d.ds.spec.Type == "VMFS" {
		suffix = "-sesparse.vmdk"
	}
	link := chainLink{name: name, parent: links[len(links)-1].name, data: stem + suffix, layer: newLayer(d.noise)}
	if err := d.writeLink(link); err != nil {
		return err
	}
	next := append(slices.Clone(links), link)
	d.links.Store(&next)
	return nil
}

// deltaName returns the descriptor name of the delta with this number.
func (d *vdisk) deltaName(number int) string {
	return fmt.Sprintf("%s-%06d.vmdk", strings.TrimSuffix(d.spec.Name, ".vmdk"), number)
}

// mergeLink merges link n into the link below and removes its files. Open readers of either link, or of
// a later one, then get errors.
func (d *vdisk) mergeLink(n int) error {
	links := slices.Clone(d.currentLinks())
	if n < 1 || n >= len(links) {
		return fmt.Errorf("disk %s has no link %d", d.spec.Name, n)
	}
	lower, upper := links[n-1], links[n]
	links[n-1].layer = mergeLayers(lower.layer, upper.layer)
	lower.layer.stale.Store(true) // open readers fail from now on
	upper.layer.stale.Store(true)
	links = slices.Delete(links, n, n+1)
	var errs []error
	if n < len(links) { // the one above has another parent now
		links[n].parent = links[n-1].name
		errs = append(errs, d.writeLink(links[n]))
	}
	d.links.Store(&links)
	d.registerData(links[n-1])
	folder := d.vm.spec.Folder
	d.ds.setFile(filepath.Join(folder, upper.data), nil)
	for _, name := range []string{upper.name, ctkName(upper.name)} {
		if err := d.ds.root.Remove(filepath.Join(folder, name)); err != nil && !os.IsNotExist(err) {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// Why snapshots fail.
const (
	// reason of FaultSnapshotCreate
	quiesceReason = "An error occurred while taking a snapshot: Failed to quiesce the virtual machine."
	lockedReason  = "Unable to access file since it is locked" // reason of FaultSnapshotRemove
)

// CreateSnapshotTask calls the simulator unless a fault is active.
func (v *virtualMachine) CreateSnapshotTask(ctx *simulator.Context, req *types.CreateSnapshot_Task) soap.HasFault {
	if f := v.lab.busyFault(v.machine); f != nil {
		return &methods.CreateSnapshot_TaskBody{Fault_: f}
	}
	if v.lab.snapshotFault(v.machine, FaultSnapshotCreate) {
		ref := v.failTask(ctx, "createSnapshot", quiesceReason)
		return &methods.CreateSnapshot_TaskBody{Res: &types.CreateSnapshot_TaskResponse{Returnval: ref}}
	}
	return v.VirtualMachine.CreateSnapshotTask(ctx, req)
}

// CreateSnapshotExTask calls the simulator unless a fault is active.
func (v *virtualMachine) CreateSnapshotExTask(ctx *simulator.Context, req *types.CreateSnapshotEx_Task) soap.HasFault {
	if f := v.lab.busyFault(v.machine); f != nil {
		return &methods.CreateSnapshotEx_TaskBody{Fault_: f}
	}
	if v.lab.snapshotFault(v.machine, FaultSnapshotCreate) {
		ref := v.failTask(ctx, "createSnapshotEx", quiesceReason)
		return &methods.CreateSnapshotEx_TaskBody{Res: &types.CreateSnapshotEx_TaskResponse{Returnval: ref}}
	}
	return v.VirtualMachine.CreateSnapshotExTask(ctx, req)
}

// failTask starts a task that fails, and returns its reference.
func (v *virtualMachine) failTask(ctx *simulator.Context, name, reason string) types.ManagedObjectReference {
	return v.lab.startTask(ctx, v.Self, name, func(*labTask) (types.AnyType, types.BaseMethodFault) {
		return nil, &types.GenericVmConfigFault{Reason: reason}
	})
}

// ConsolidateVMDisksTask merges the deltas of removed snapshots.
func (v *virtualMachine) ConsolidateVMDisksTask(ctx *simulator.Context, _ *types.ConsolidateVMDisks_Task) soap.HasFault {
	ref := v.lab.startTask(ctx, v.Self, "consolidateDisks", func(*labTask) (types.AnyType, types.BaseMethodFault) {
		own := v.lab.newContext()
		own.WithLock(v.VirtualMachine, func() {
			if v.machine != nil {
				v.machine.mergeLeftovers(v.lab, &v.VirtualMachine.VirtualMachine)
			}
			own.Update(v.VirtualMachine, []types.PropertyChange{{Name: "runtime.consolidationNeeded", Val: false}})
		})
		return nil, nil
	})
	return &methods.ConsolidateVMDisks_TaskBody{Res: &types.ConsolidateVMDisks_TaskResponse{Returnval: ref}}
}

// mergeLeftovers merges the deltas of removed snapshots. The VM's lock must be held.
func (m *machine) mergeLeftovers(l *Lab, vm *mo.VirtualMachine) {
	m.writing.Lock()
	defer m.writing.Unlock()
	for i := len(m.snaps) - 1; i >= 0; i-- {
		if m.snaps[i].ref.Value == "" {
			m.mergeSnapshot(l, vm, i)
		}
	}
	m.showBackings(vm)
	m.setLayout(vm)
}

// A vmSnapshot is a simulator's snapshot, with the emulator's removal.
type vmSnapshot struct {
	*simulator.VirtualMachineSnapshot
	lab     *Lab     // emulator with the faults
	machine *machine // VM of the snapshot
}

// RemoveSnapshotTask calls the simulator unless a fault is active. The delta remains if the caller or a
// fault requires it.
func (s *vmSnapshot) RemoveSnapshotTask(ctx *simulator.Context, req *types.RemoveSnapshot_Task) soap.HasFault {
	if f := s.lab.busyFault(s.machine); f != nil {
		return &methods.RemoveSnapshot_TaskBody{Fault_: f}
	}
	if s.lab.snapshotFault(s.machine, FaultSnapshotRemove) {
		ref := s.lab.startTask(ctx, s.machine.ref, "removeSnapshot", func(*labTask) (types.AnyType, types.BaseMethodFault) {
			return nil, &types.GenericVmConfigFault{Reason: lockedReason}
		})
		return &methods.RemoveSnapshot_TaskBody{Res: &types.RemoveSnapshot_TaskResponse{Returnval: ref}}
	}
	if f := s.machine.removeOnce(ctx, req.This); f != nil {
		return &methods.RemoveSnapshot_TaskBody{Fault_: f}
	}
	leave := req.Consolidate != nil && !*req.Consolidate || s.lab.snapshotFault(s.machine, FaultSnapshotConsolidate)
	s.machine.setLeaveDelta(leave)
	return s.VirtualMachineSnapshot.RemoveSnapshotTask(ctx, req)
}

// removeOnce returns a fault if the removal of the snapshot has begun: two clients may remove it at the
// same time, if one of them considers the other dead. The simulator would crash.
func (m *machine) removeOnce(ctx *simulator.Context, ref types.ManagedObjectReference) *soap.Fault {
	m.writing.Lock()
	defer m.writing.Unlock()
	if !m.removed[ref] {
		if m.removed == nil {
			m.removed = map[types.ManagedObjectReference]bool{}
		}
		m.removed[ref] = true
		return nil
	}
	if ctx.Map.Get(ref) == nil {
		return simulator.Fault("", &types.ManagedObjectNotFound{Obj: ref})
	}
	return simulator.Fault("", &types.TaskInProgress{})
}

// RemoveAllSnapshotsTask calls the simulator unless a fault is active.
func (v *virtualMachine) RemoveAllSnapshotsTask(ctx *simulator.Context, req *types.RemoveAllSnapshots_Task) soap.HasFault {
	if v.lab.snapshotFault(v.machine, FaultSnapshotRemove) {
		ref := v.failTask(ctx, "RemoveAllSnapshots", lockedReason)
		return &methods.RemoveAllSnapshots_TaskBody{Res: &types.RemoveAllSnapshots_TaskResponse{Returnval: ref}}
	}
	if v.machine != nil {
		v.machine.setLeaveDelta(v.lab.snapshotFault(v.machine, FaultSnapshotConsolidate))
	}
	return v.VirtualMachine.RemoveAllSnapshotsTask(ctx, req)
}

// setLeaveDelta sets whether the delta of the next removed snapshot remains.
func (m *machine) setLeaveDelta(leave bool) {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.leaveDelta = leave
}

// snapshotFault reports whether a fault of this kind affects m, and counts it.
func (l *Lab) snapshotFault(m *machine, kind FaultKind) bool {
	return m != nil && l.faults.takeIf(func(f *Fault) bool { return f.Kind == kind && f.matchesPath(m.spec.Name, "") }) != nil
}

// busyFault returns the fault of a VM on which another operation is in progress: "TaskInProgress: if
// the virtual machine is busy" (API reference, CreateSnapshot_Task and others). It returns nil without
// FaultVMBusy.
func (l *Lab) busyFault(m *machine) *soap.Fault {
	if !l.snapshotFault(m, FaultVMBusy) {
		return nil
	}
	return simulator.Fault("", &types.TaskInProgress{Task: types.ManagedObjectReference{Type: "Task", Value: "relocate-1"}})
}

// snapAt returns the index of a snapshot, or -1. writing must be held.
func (m *machine) snapAt(ref types.ManagedObjectReference) int {
	return slices.IndexFunc(m.snaps, func(s *snapshotState) bool { return s.ref == ref })
}
