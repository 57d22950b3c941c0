package esx

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// SnapshotSpec describes a snapshot to create. It never includes the VM's memory.
type SnapshotSpec struct {
	Name        string // unique name, by which the snapshot is found after a crash
	Description string // text for the VM's owner
	// flush the guest's file systems with VMware Tools first; otherwise the disks are
	// as after a power failure
	Quiesce bool
}

// CreateSnapshot freezes the disks of a VM and returns the snapshot. An existing
// snapshot with that name is fault.Conflict, because it has an earlier state.
//
// A snapshot pauses the VM for a moment, pauses it for longer when it is removed, and
// needs space for all writes in between. The caller must record a snapshot before it is
// created, and must remove it.
func (s *vmController) CreateSnapshot(ctx context.Context, vm inventory.MoRef, o SnapshotSpec) (inventory.MoRef, error) {
	ref, err := s.createSnapshot(ctx, vm, o)
	if err != nil {
		return "", fmt.Errorf("take snapshot %q of VM %s: %w", o.Name, vm, classify(err))
	}
	s.cfg.Log.Info("snapshot taken", "vm", vm, "snapshot", o.Name, "ref", ref)
	return ref, nil
}

// createSnapshot does the work of CreateSnapshot without the context of errors.
func (s *vmController) createSnapshot(ctx context.Context, vm inventory.MoRef, o SnapshotSpec) (inventory.MoRef, error) {
	// Names need not be unique in vSphere, so the check must come before the creation.
	switch _, found, err := s.findSnapshot(ctx, vm, o.Name); {
	case err != nil:
		return "", err
	case found:
		return "", fault.New(fault.Conflict, "the VM has a snapshot of that name").WithHint("remove it: it contains an earlier state")
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
	// The result of the task contains it as well, but the task may be removed before it
	// is read.
	ref, found, err := s.findSnapshot(ctx, vm, o.Name)
	if err == nil && !found {
		err = fault.New(fault.Conflict, "it was removed at once").WithHint("find the user in the VM's recent tasks")
	}
	return ref, err
}

// snapshotError adds remedies to the faults of a VM whose disks cannot be frozen.
func snapshotError(err error) error {
	switch vimFault(err).(type) {
	case *types.ApplicationQuiesceFault, *types.FilesystemQuiesceFault, *types.ToolsUnavailable:
		return fault.New(fault.Conflict, "the guest could not be quiesced: %w", err).
			WithHint("check VMware Tools and the VSS writers in the guest, or do not quiesce: the disks are then as after a power failure")
	case *types.TooManySnapshotLevels:
		return fault.New(fault.Conflict, "%w", err).WithHint("delete snapshots of the VM: it can have at most 32 in a chain")
	case *types.MultiWriterNotSupported, *types.RDMNotSupported, *types.MemorySnapshotOnIndependentDisk:
		return fault.New(fault.Unsupported, "%w", err).WithHint("migrate the VM powered off: snapshots of its disks are not possible while it runs")
	}
	return err
}

// FindSnapshot returns the snapshot with that name and whether it exists. Two snapshots
// with the name are fault.Conflict.
func (s *vmController) FindSnapshot(ctx context.Context, vm inventory.MoRef, name string) (inventory.MoRef, bool, error) {
	ref, found, err := s.findSnapshot(ctx, vm, name)
	if err != nil {
		return "", false, fmt.Errorf("find snapshot %q of VM %s: %w", name, vm, classify(err))
	}
	return ref, found, nil
}

// findSnapshot does the work of FindSnapshot without the context of errors.
func (s *vmController) findSnapshot(ctx context.Context, vm inventory.MoRef, name string) (inventory.MoRef, bool, error) {
	found, there, err := s.lookUpSnapshot(ctx, vm, name)
	return found.Ref, there, err
}

// SnapshotEntry is a snapshot in the tree of its VM.
type SnapshotEntry struct {
	Ref      inventory.MoRef // reference of the snapshot
	ID       int32           // number of the snapshot within the VM, which vim-cmd uses
	Children int             // number of snapshots directly on top of this one
	Name     string          // name of the snapshot; others of the VM may have the same one
	Path     string          // names from the oldest snapshot to this one: "base > patched"
	Created  time.Time       // time of the creation
}

// lookUpSnapshot returns the tree entry of the snapshot with that name, and whether it
// exists.
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
		return SnapshotEntry{}, false, fault.New(fault.Conflict, "the VM has %d snapshots of that name", len(found)).WithHint("remove those that are not required")
	}
}

// snapshotsNamed returns all snapshots of a tree that have the name.
func snapshotsNamed(tree []types.VirtualMachineSnapshotTree, name string) []SnapshotEntry {
	return slices.DeleteFunc(listSnapshots(tree, ""), func(e SnapshotEntry) bool { return e.Name != name })
}

// listSnapshots returns all snapshots of a tree, parents before children. above is the beginning of their
// paths.
func listSnapshots(tree []types.VirtualMachineSnapshotTree, above string) (all []SnapshotEntry) {
	for _, node := range tree {
		name := unescapeName(node.Name)
		all = append(all, SnapshotEntry{inventory.MoRef(node.Snapshot.Value), node.Id, len(node.ChildSnapshotList), name, above + name, node.CreateTime})
		all = append(all, listSnapshots(node.ChildSnapshotList, above+name+" > ")...)
	}
	return all
}

// DropSnapshot removes the snapshot with that name and merges its delta disks. Without
// such a snapshot it merges delta disks that an earlier removal left.
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

// RemoveSnapshot removes a snapshot and waits until its delta disks are merged, which
// rewrites all data written since. If ctx ends first, the host continues. Older
// snapshots are kept. A snapshot that does not exist is no error. Delta disks of an
// earlier failed merge are consolidated.
func (s *vmController) RemoveSnapshot(ctx context.Context, vm, snapshot inventory.MoRef, progress func(percent int)) error {
	if err := s.removeSnapshot(ctx, vm, snapshot, progress); err != nil {
		return fmt.Errorf("remove snapshot %s of VM %s: %w", snapshot, vm, classify(err))
	}
	s.cfg.Log.Info("snapshot removed", "vm", vm, "ref", snapshot)
	return nil
}

// removeSnapshot does the work of RemoveSnapshot without the context of errors.
// progress may be nil.
func (s *vmController) removeSnapshot(ctx context.Context, vm, snapshot inventory.MoRef, progress func(int)) error {
	// The flag makes the host merge the delta disks of the snapshot.
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

// Consolidate merges delta disks that belong to no snapshot, and waits. It returns nil
// if there are none.
func (s *vmController) Consolidate(ctx context.Context, vm inventory.MoRef) error {
	if err := s.consolidateDisks(ctx, vm, nil); err != nil {
		return fmt.Errorf("consolidate disks of VM %s: %w", vm, classify(err))
	}
	return nil
}

// consolidateDisks does the work of Consolidate. A failed merge is fault.Conflict:
// another process has a delta disk open. progress may be nil.
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
		return fault.New(fault.Conflict, "its disks require consolidation: %w", classify(err)).
			WithHint("a process, such as a backup, has a delta disk open: end it, and consolidate the disks (Snapshots > Consolidate)")
	}
	return nil
}

// SnapshotDisk returns the descriptor of a disk in the state of a snapshot: its base,
// or the delta disk that was active until then. /folder refuses to read it while the VM
// runs. ESXi can clone it with vmkfstools. That CopyVirtualDisk_Task can also clone it
// is inferred; a failure is reported when it is tried.
func (s *vmController) SnapshotDisk(ctx context.Context, snapshot inventory.MoRef, key int32) (inventory.Path, error) {
	p, err := s.snapshotDisk(ctx, snapshot, key)
	if err != nil {
		return p, fmt.Errorf("find disk %d at snapshot %s: %w", key, snapshot, classify(err))
	}
	return p, nil
}

// snapshotDisk does the work of SnapshotDisk without the context of errors.
func (s *vmController) snapshotDisk(ctx context.Context, snapshot inventory.MoRef, key int32) (inventory.Path, error) {
	d, err := s.diskAt(ctx, snapshot, key)
	if err != nil {
		return inventory.Path{}, err
	}
	return inventory.ParsePath(layersOf(d.Backing)[0].file.FileName)
}

// DiskAtSnapshot returns a disk in the state of a snapshot, with its chain. Path is the
// result of SnapshotDisk. Backing does not consider the type of the datastore: a vSAN
// object is Flat. Invalid values from the server are fault.Corrupt.
func (s *vmController) DiskAtSnapshot(ctx context.Context, snapshot inventory.MoRef, key int32) (*inventory.Disk, error) {
	d, err := s.diskAt(ctx, snapshot, key)
	if err != nil {
		return nil, fmt.Errorf("find disk %d at snapshot %s: %w", key, snapshot, classify(err))
	}
	// An empty tree has no datastores, so the backing has the type of the API.
	frozen := (&tree{}).toDisk(d, nil)
	at := inventory.VM{Disks: []inventory.Disk{frozen}}
	if problems := at.RemoveInvalid(); len(problems) > 0 {
		return nil, fault.New(fault.Corrupt, "disk %d at snapshot %s: %s", key, snapshot, strings.Join(problems, "; ")).
			WithHint("remove the VM from the inventory and register it again")
	}
	return &frozen, nil
}

// diskAt returns a disk of a snapshot that has a file. A disk that the snapshot does
// not contain is fault.NotFound.
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
			break // it is in the configuration of the snapshot, but the VM still writes to it
		}
		return disk, nil
	}
	return nil, fault.New(fault.NotFound, "it is not part of the snapshot").
		WithHint("snapshots do not include independent disks and physical RDMs: migrate the VM powered off")
}

// isIndependent reports whether snapshots omit a disk with that mode.
func isIndependent(mode string) bool { return strings.HasPrefix(mode, "independent") }

// mergeWait limits the wait for a merge. Merges of large delta disks take days.
const mergeWait = 365 * 24 * time.Hour

// awaitTask waits until a task ends. If ctx ends first, the task continues on the host:
// a merge must not be interrupted. progress is called with percentages and may be nil.
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

// Snapshots returns all snapshots of a VM, parents before children.
func (s *vmController) Snapshots(ctx context.Context, vm inventory.MoRef) ([]SnapshotEntry, error) {
	var v mo.VirtualMachine
	if err := s.readProperties(ctx, moRef("VirtualMachine", vm), &v, "snapshot"); err != nil {
		return nil, fmt.Errorf("list snapshots of VM %s: %w", vm, classify(err))
	}
	if v.Snapshot == nil {
		return nil, nil
	}
	return listSnapshots(v.Snapshot.RootSnapshotList, ""), nil
}

// AwaitSnapshot waits until a snapshot with that name exists or, if there is false,
// until none exists. It waits for the given time, and then for as long as a task of the
// VM runs. It returns the final state. With a wait of 0 it returns the current state.
// Another client may create or remove the snapshot.
func (s *vmController) AwaitSnapshot(ctx context.Context, vm inventory.MoRef, name string, there bool, wait time.Duration) (SnapshotEntry, bool, error) {
	entry, is, err := s.awaitSnapshot(ctx, vm, name, there, wait)
	if err != nil {
		return entry, is, fmt.Errorf("find snapshot %q of VM %s: %w", name, vm, classify(err))
	}
	return entry, is, nil
}

// awaitSnapshot does the work of AwaitSnapshot without the context of errors.
func (s *vmController) awaitSnapshot(ctx context.Context, vm inventory.MoRef, name string, there bool, wait time.Duration) (entry SnapshotEntry, is bool, err error) {
	for {
		// The state is read at least once, also with a wait of 0.
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
		if !works { // the task may have ended after the last read
			return s.lookUpSnapshot(ctx, vm, name)
		}
	}
}

// hasRunningTask reports whether the host runs or queues a task of the VM.
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
