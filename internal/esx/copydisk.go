package esx

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// A DiskCopy describes a disk that a host copies from one datastore to another.
type DiskCopy struct {
	Datacenter string            // inventory path of the datacenter; only a vCenter needs it
	From, To   inventory.Path    // datastore paths of the descriptors
	Object     bool              // true if From has no flat file: a raw device mapping or a vSAN object
	Progress   func(percent int) // called with the progress that the task reports; may be nil
}

// CopyDisk makes the server copy a disk by its descriptor, and waits until the copy
// ends. If ctx ends first, it cancels the task. An existing destination is
// fault.Conflict.
//
// CopyVirtualDisk_Task needs no shell on the host, but a licence that allows changes.
// ESXi honours the requested thin format. vCenter rejects a format in the request; the
// copy is then as sparse as the destination makes it.
func (s *vmController) CopyDisk(ctx context.Context, c DiskCopy) error {
	if err := s.copyDisk(ctx, c); err != nil {
		return fmt.Errorf("copy %v to %v: %w", c.From, c.To, classify(err))
	}
	return nil
}

// copyDisk starts the task and follows it. A vCenter needs the reference of the
// datacenter, which is looked up by its inventory path. An ESXi host does not.
func (s *vmController) copyDisk(ctx context.Context, c DiskCopy) error {
	manager := s.vim.ServiceContent.VirtualDiskManager
	if manager == nil {
		return fault.New(fault.Unsupported, "the server has no disk manager").WithHint("use --transport https")
	}
	req := &types.CopyVirtualDisk_Task{This: *manager, SourceName: c.From.String(), DestName: c.To.String()}
	if s.about.VCenter {
		dc, err := s.datacenterRef(ctx, c.Datacenter)
		if err != nil {
			return err
		}
		// Both datastores belong to the VM's datacenter, because its hosts mount the
		// destination.
		req.SourceDatacenter, req.DestDatacenter = &dc, &dc
	} else {
		// The API requires both the disk type and the adapter type.
		req.DestSpec = &types.FileBackedVirtualDiskSpec{VirtualDiskSpec: types.VirtualDiskSpec{
			DiskType: string(types.VirtualDiskTypeThin), AdapterType: string(types.VirtualDiskAdapterTypeLsiLogic),
		}}
	}
	res, err := methods.CopyVirtualDisk_Task(ctx, s, req)
	if err == nil {
		err = s.followTask(ctx, res.Returnval, c.Progress)
	}
	return copyError(err, c)
}

// copyError adds remedies to the faults of a copy. FileFault without details is an I/O
// error at either end: an outage of our server that was longer than the host's NFS
// timeout (140 s), or a bad sector on the host's disk.
func copyError(err error, c DiskCopy) error {
	switch vimFault(err).(type) {
	case *types.FileAlreadyExists:
		return fault.New(fault.Conflict, "%w", err).WithHint("remove %v on the host", c.To)
	case *types.FileLocked:
		return fault.New(fault.Conflict, "%w", err).
			WithHint("a process on the host has the disk open: power the VM off, and find the process with vmfsfilelockinfo")
	case *types.RequestCanceled:
		return fault.New(fault.Transient, "the task was canceled on the host: %w", err).
			WithHint("find the user in the host's recent tasks; run the command again to continue")
	case *types.FileFault, *types.CannotAccessFile:
		return fault.New(fault.Transient, "%w", err).
			WithHint("the host could not read its disk or write to this machine: see /var/log/vmkernel.log there; if the disk fails, use --transport https")
	}
	return err
}

// datacenterRef returns the datacenter with the inventory path, or fault.NotFound.
func (s *inventoryReader) datacenterRef(ctx context.Context, path string) (types.ManagedObjectReference, error) {
	t, err := s.readAll(ctx, places...)
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	for ref := range t.nodes {
		if ref.Type != "Datacenter" {
			continue
		}
		if at, _ := t.locate(&ref); at == path {
			return ref, nil
		}
	}
	return types.ManagedObjectReference{}, fault.New(fault.NotFound, "datacenter %s does not exist", path).WithHint("list the inventory again: decamp ls")
}

// followTask waits until a task ends and calls progress with its percentage; progress
// may be nil. The task may run for days. If ctx ends first, followTask cancels the task
// and returns ctx's error.
func (s *vmController) followTask(ctx context.Context, ref types.ManagedObjectReference, progress func(int)) error {
	for {
		var task mo.Task
		err := s.readProperties(ctx, ref, &task, "info")
		if err == nil {
			if progress != nil && task.Info.State == types.TaskInfoStateRunning {
				progress(int(task.Info.Progress))
			}
			var done bool
			if done, err = taskDone(task.Info); done {
				return nil
			}
		}
		if err == nil {
			select {
			case <-s.cfg.After(pollEvery):
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		// The task is also canceled if reading its state failed because ctx ended.
		if ctx.Err() != nil {
			s.cancelTask(ctx, ref)
		}
		return err
	}
}

// cancelTask requests the cancellation of a task and does not wait for its end. It
// works after ctx ended, and logs a failure.
func (s *vmController) cancelTask(ctx context.Context, ref types.ManagedObjectReference) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), taskWait)
	defer cancel()
	_, err := methods.CancelTask(ctx, s, &types.CancelTask{This: ref})
	if err != nil && !errors.Is(err, context.Canceled) {
		s.cfg.Log.Warn("task not canceled, it continues on the host", "task", ref.Value, "err", err)
	}
}
