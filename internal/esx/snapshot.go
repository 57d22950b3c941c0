package esx

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// SnapshotSpec says how a snapshot is taken. The VM's memory is never part of it.
type SnapshotSpec struct {
	Name        string // by which it is found again after a crash: choose one that nobody else uses
	Description string // shown to the VM's owner
	Quiesce     bool   // have VMware Tools flush the guest's file systems before; without, it is as after a power cut
}

// CreateSnapshot freezes the disks of a VM as they are now, and returns the snapshot. One of
// that name that is there already is fault.Conflict: it is of another moment.
//
// What a snapshot costs the VM is a moment of standstill now, a longer one when it is
// removed, and the space of what is written in between. Whoever takes one puts it on record
// first, and removes it.
func (s *vmController) CreateSnapshot(ctx context.Context, vm inventory.MoRef, o SnapshotSpec) (inventory.MoRef, error) {
	ref, err := s.createSnapshot(ctx, vm, o)
	if err != nil {
		return "", fmt.Errorf("take snapshot %q of VM %s: %w", o.Name, vm, classify(err))
	}
	s.cfg.Log.Info("snapshot taken", "vm", vm, "snapshot", o.Name, "ref", ref)
	return ref, nil
}

func (s *vmController) createSnapshot(ctx context.Context, vm inventory.MoRef, o SnapshotSpec) (inventory.MoRef, error) {
	switch _, found, err := s.findSnapshot(ctx, vm, o.Name); {
	case err != nil:
		return "", err
	case found:
		return "", fault.New(fault.Conflict, "the VM has a snapshot of that name").WithHint("remove it: it is of an earlier moment")
	}
	res, err := methods.CreateSnapshot_Task(ctx, s, &types.CreateSnapshot_Task{
		This: moRef("VirtualMachine", vm), Name: o.Name, Description: o.Description, Quiesce: o.Quiesce,
	})
	if err == nil {
		err = s.followTask(ctx, res.Returnval, nil)
	}
	if err != nil {
		return "", snapshotError(err)
	}
	// The task's result names it too, but a task may be gone by the time one asks.
	ref, found, err := s.findSnapshot(ctx, vm, o.Name)
	if err == nil && !found {
		err = fault.New(fault.Conflict, "it was removed at once").WithHint("see the VM's recent tasks for who does so")
	}
	return ref, err
}

// snapshotError says what can be done about a VM that cannot be frozen.
func snapshotError(err error) error {
	switch vimFault(err).(type) {
	case *types.ApplicationQuiesceFault, *types.FilesystemQuiesceFault, *types.ToolsUnavailable:
		return fault.New(fault.Conflict, "the guest could not be quiesced: %w", err).
			WithHint("see VMware Tools and the VSS writers in the guest, or take the disks as after a power cut, without quiescing")
	case *types.TooManySnapshotLevels:
		return fault.New(fault.Conflict, "%w", err).WithHint("delete snapshots of the VM: a chain has 32 at most")
	case *types.MultiWriterNotSupported, *types.RDMNotSupported, *types.MemorySnapshotOnIndependentDisk:
		return fault.New(fault.Unsupported, "%w", err).WithHint("power the VM off to move it: its disks cannot be frozen while it runs")
	}
	return err
}

// FindSnapshot returns the snapshot of a VM that has the name, and whether there is one.
// Two of the same name are fault.Conflict.
func (s *vmController) FindSnapshot(ctx context.Context, vm inventory.MoRef, name string) (inventory.MoRef, bool, error) {
	ref, found, err := s.findSnapshot(ctx, vm, name)
	if err != nil {
		return "", false, fmt.Errorf("find snapshot %q of VM %s: %w", name, vm, classify(err))
	}
	return ref, found, nil
}

func (s *vmController) findSnapshot(ctx context.Context, vm inventory.MoRef, name string) (inventory.MoRef, bool, error) {
	found, there, err := s.lookUpSnapshot(ctx, vm, name)
	return found.Ref, there, err
}

// SnapshotEntry is a snapshot as its VM's tree has it.
type SnapshotEntry struct {
	Ref      inventory.MoRef
	ID       int32 // its number among the VM's, by which vim-cmd knows it
	Children int   // that were taken on top of it
}

func (s *vmController) lookUpSnapshot(ctx context.Context, vm inventory.MoRef, name string) (SnapshotEntry, bool, error) {
	var v mo.VirtualMachine
	if err := s.readProperties(ctx, moRef("VirtualMachine", vm), &v, "snapshot"); err != nil {
		return SnapshotEntry{}, false, err
	}
	if v.Snapshot == nil {
		return SnapshotEntry{}, false, nil
	}
	switch found := snapshotsNamed(v.Snapshot.RootSnapshotList, name); len(found) {
	case 0:
		return SnapshotEntry{}, false, nil
	case 1:
		return found[0], true, nil
	default:
		return SnapshotEntry{}, false, fault.New(fault.Conflict, "the VM has %d snapshots of that name", len(found)).WithHint("remove those that are not wanted")
	}
}

// snapshotsNamed lists the snapshots of a tree that have the name.
func snapshotsNamed(tree []types.VirtualMachineSnapshotTree, name string) (found []SnapshotEntry) {
	for _, node := range tree {
		if unescapeName(node.Name) == name {
			found = append(found, SnapshotEntry{inventory.MoRef(node.Snapshot.Value), node.Id, len(node.ChildSnapshotList)})
		}
		found = append(found, snapshotsNamed(node.ChildSnapshotList, name)...)
	}
	return found
}

// DropSnapshot removes the snapshot of that name, if there is one, and merges what it left.
func (s *vmController) DropSnapshot(ctx context.Context, vm inventory.MoRef, name string) error {
	ref, found, err := s.FindSnapshot(ctx, vm, name)
	switch {
	case err != nil:
		return err
	case !found:
		return s.Consolidate(ctx, vm) // its delta may be there
	}
	return s.RemoveSnapshot(ctx, vm, ref, nil)
}

// RemoveSnapshot merges a snapshot into what follows it, and waits: as long as it takes to
// write again what was written since. If ctx ends first, the host goes on by itself. Those
// below it stay. One that is not there is no error; deltas that are left over from a merge
// that failed are consolidated.
func (s *vmController) RemoveSnapshot(ctx context.Context, vm, snapshot inventory.MoRef, progress func(percent int)) error {
	if err := s.removeSnapshot(ctx, vm, snapshot, progress); err != nil {
		return fmt.Errorf("remove snapshot %s of VM %s: %w", snapshot, vm, classify(err))
	}
	s.cfg.Log.Info("snapshot removed", "vm", vm, "ref", snapshot)
	return nil
}

func (s *vmController) removeSnapshot(ctx context.Context, vm, snapshot inventory.MoRef, progress func(int)) error {
	consolidate := true
	res, err := methods.RemoveSnapshot_Task(ctx, s, &types.RemoveSnapshot_Task{
		This: moRef("VirtualMachineSnapshot", snapshot), RemoveChildren: false, Consolidate: &consolidate,
	})
	if err == nil {
		// A merge must not be canceled half way: ctx ends the waiting, not the task.
		err = s.awaitTask(ctx, res.Returnval, progress)
	}
	if _, gone := vimFault(err).(*types.ManagedObjectNotFound); err != nil && !gone {
		return err
	}
	return s.consolidateDisks(ctx, vm, progress)
}

// Consolidate merges deltas that no snapshot of a VM has any more, and waits. There may be
// none.
func (s *vmController) Consolidate(ctx context.Context, vm inventory.MoRef) error {
	if err := s.consolidateDisks(ctx, vm, nil); err != nil {
		return fmt.Errorf("consolidate disks of VM %s: %w", vm, classify(err))
	}
	return nil
}

// consolidateDisks merges deltas that no snapshot has any more.
func (s *vmController) consolidateDisks(ctx context.Context, vm inventory.MoRef, progress func(int)) error {
	var v mo.VirtualMachine
	if err := s.readProperties(ctx, moRef("VirtualMachine", vm), &v, "runtime.consolidationNeeded"); err != nil {
		return err
	}
	if !v.Runtime.ConsolidationNeeded {
		return nil
	}
	res, err := methods.ConsolidateVMDisks_Task(ctx, s, &types.ConsolidateVMDisks_Task{This: moRef("VirtualMachine", vm)})
	if err == nil {
		err = s.awaitTask(ctx, res.Returnval, progress)
	}
	if err != nil {
		return fault.New(fault.Conflict, "its disks need consolidation: %w", classify(err)).
			WithHint("something holds a delta open, a backup most likely: end it, and consolidate (Snapshots > Consolidate)")
	}
	return nil
}

// SnapshotDisk returns the descriptor that holds a disk as it was at a snapshot: its base,
// or the delta that was written to until then. ESXi clones it while the VM runs (vmkfstools
// does; that CopyVirtualDisk_Task does too is inferred, and is seen when it is tried),
// although /folder refuses it.
func (s *vmController) SnapshotDisk(ctx context.Context, snapshot inventory.MoRef, key int32) (inventory.Path, error) {
	p, err := s.snapshotDisk(ctx, snapshot, key)
	if err != nil {
		return p, fmt.Errorf("find disk %d at snapshot %s: %w", key, snapshot, classify(err))
	}
	return p, nil
}

func (s *vmController) snapshotDisk(ctx context.Context, snapshot inventory.MoRef, key int32) (inventory.Path, error) {
	d, err := s.diskAt(ctx, snapshot, key)
	if err != nil {
		return inventory.Path{}, err
	}
	return inventory.ParsePath(layersOf(d.Backing)[0].file.FileName)
}

// FrozenDisk returns a disk as it was at a snapshot, its chain included; Path is what
// SnapshotDisk returns. Its Backing is told without a look at the datastore: a vSAN object
// is Flat.
func (s *vmController) FrozenDisk(ctx context.Context, snapshot inventory.MoRef, key int32) (*inventory.Disk, error) {
	d, err := s.diskAt(ctx, snapshot, key)
	if err != nil {
		return nil, fmt.Errorf("find disk %d at snapshot %s: %w", key, snapshot, classify(err))
	}
	frozen := (&tree{}).toDisk(d, nil)
	at := inventory.VM{Disks: []inventory.Disk{frozen}}
	if problems := at.RemoveInvalid(); len(problems) > 0 {
		return nil, fault.New(fault.Corrupt, "disk %d at snapshot %s: %s", key, snapshot, strings.Join(problems, "; ")).
			WithHint("remove the VM from the inventory and register it again")
	}
	return &frozen, nil
}

// diskAt finds a disk of a snapshot. It has a file.
func (s *vmController) diskAt(ctx context.Context, snapshot inventory.MoRef, key int32) (*types.VirtualDisk, error) {
	var at mo.VirtualMachineSnapshot
	if err := s.readProperties(ctx, moRef("VirtualMachineSnapshot", snapshot), &at, "config.hardware.device"); err != nil {
		return nil, err
	}
	for _, d := range at.Config.Hardware.Device {
		disk, ok := d.(*types.VirtualDisk)
		if !ok || disk.Key != key {
			continue
		}
		chain := layersOf(disk.Backing)
		if len(chain) == 0 || isIndependent(chain[0].mode) {
			break // it is in the configuration that was kept, and goes on being written to
		}
		return disk, nil
	}
	return nil, fault.New(fault.NotFound, "it is not part of the snapshot").
		WithHint("independent disks and physical RDMs are left out of snapshots: power the VM off to move them")
}

// isIndependent reports whether a disk of that mode is left out of snapshots.
func isIndependent(mode string) bool { return strings.HasPrefix(mode, "independent") }

// mergeWait bounds the wait for a merge: those of large deltas take days.
const mergeWait = 365 * 24 * time.Hour

// awaitTask waits for the end of a task that goes on if ctx ends.
func (s *vmController) awaitTask(ctx context.Context, ref types.ManagedObjectReference, progress func(int)) error {
	_, err := s.pollUntil(ctx, mergeWait, func() (bool, error) {
		var task mo.Task
		if err := s.readProperties(ctx, ref, &task, "info"); err != nil {
			return false, err
		}
		if progress != nil && task.Info.State == types.TaskInfoStateRunning {
			progress(int(task.Info.Progress))
		}
		return taskDone(task.Info)
	})
	return err
}

// SnapshotNames returns the names of all snapshots of a VM.
func (s *vmController) SnapshotNames(ctx context.Context, vm inventory.MoRef) ([]string, error) {
	var v mo.VirtualMachine
	if err := s.readProperties(ctx, moRef("VirtualMachine", vm), &v, "snapshot"); err != nil {
		return nil, fmt.Errorf("list snapshots of VM %s: %w", vm, classify(err))
	}
	if v.Snapshot == nil {
		return nil, nil
	}
	return namesIn(v.Snapshot.RootSnapshotList), nil
}

func namesIn(tree []types.VirtualMachineSnapshotTree) (names []string) {
	for _, node := range tree {
		names = append(names, unescapeName(node.Name))
		names = append(names, namesIn(node.ChildSnapshotList)...)
	}
	return names
}

// AwaitSnapshot waits until a VM has a snapshot of that name, or with there false until it has
// none: for that long, and for as long as the host works on the VM. It returns what there is in
// the end; with a wait of 0 that is what there is now. Nothing of the session need be what
// takes or removes it.
func (s *vmController) AwaitSnapshot(ctx context.Context, vm inventory.MoRef, name string, there bool, wait time.Duration) (SnapshotEntry, bool, error) {
	entry, is, err := s.awaitSnapshot(ctx, vm, name, there, wait)
	if err != nil {
		return entry, is, fmt.Errorf("look for snapshot %q of VM %s: %w", name, vm, classify(err))
	}
	return entry, is, nil
}

func (s *vmController) awaitSnapshot(ctx context.Context, vm inventory.MoRef, name string, there bool, wait time.Duration) (entry SnapshotEntry, is bool, err error) {
	for {
		done, err := s.pollUntil(ctx, wait, func() (bool, error) {
			entry, is, err = s.lookUpSnapshot(ctx, vm, name)
			return is == there, err
		})
		if done || err != nil || wait == 0 {
			return entry, is, err
		}
		works, err := s.hasRunningTask(ctx, vm)
		if err != nil {
			return entry, is, err
		}
		if !works { // it may have ended since that look
			return s.lookUpSnapshot(ctx, vm, name)
		}
	}
}

// hasRunningTask reports whether the host has a task of the VM under way.
func (s *vmController) hasRunningTask(ctx context.Context, vm inventory.MoRef) (bool, error) {
	var v mo.VirtualMachine
	if err := s.readProperties(ctx, moRef("VirtualMachine", vm), &v, "recentTask"); err != nil {
		return false, err
	}
	for _, ref := range v.RecentTask {
		var task mo.Task
		err := s.readProperties(ctx, ref, &task, "info")
		if _, gone := vimFault(err).(*types.ManagedObjectNotFound); gone {
			continue
		}
		if err != nil || task.Info.State == types.TaskInfoStateRunning || task.Info.State == types.TaskInfoStateQueued {
			return err == nil, err
		}
	}
	return false, nil
}
