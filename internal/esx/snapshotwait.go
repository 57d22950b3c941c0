package esx

import (
	"context"
	"fmt"
	"time"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// AwaitSnapshot waits until a VM has a snapshot of that name, or with there false until it has
// none: for that long, and for as long as the host works on the VM. It returns what there is in
// the end; with a wait of 0 that is what there is now. Nothing of the session need be what
// takes or removes it.
func (s *Session) AwaitSnapshot(ctx context.Context, vm inventory.MoRef, name string, there bool, wait time.Duration) (SnapshotEntry, bool, error) {
	entry, is, err := s.awaitSnapshot(ctx, vm, name, there, wait)
	if err != nil {
		return entry, is, fmt.Errorf("look for snapshot %q of VM %s: %w", name, vm, classify(err))
	}
	return entry, is, nil
}

func (s *Session) awaitSnapshot(ctx context.Context, vm inventory.MoRef, name string, there bool, wait time.Duration) (entry SnapshotEntry, is bool, err error) {
	for {
		done, err := s.poll(ctx, wait, func() (bool, error) {
			entry, is, err = s.lookUpSnapshot(ctx, vm, name)
			return is == there, err
		})
		if done || err != nil || wait == 0 {
			return entry, is, err
		}
		works, err := s.works(ctx, vm)
		if err != nil {
			return entry, is, err
		}
		if !works { // it may have ended since that look
			return s.lookUpSnapshot(ctx, vm, name)
		}
	}
}

// works reports whether the host has a task of the VM under way.
func (s *Session) works(ctx context.Context, vm inventory.MoRef) (bool, error) {
	var v mo.VirtualMachine
	if err := s.properties(ctx, reference("VirtualMachine", vm), &v, "recentTask"); err != nil {
		return false, err
	}
	for _, ref := range v.RecentTask {
		var task mo.Task
		err := s.properties(ctx, ref, &task, "info")
		if _, gone := vimFault(err).(*types.ManagedObjectNotFound); gone {
			continue
		}
		if err != nil || task.Info.State == types.TaskInfoStateRunning || task.Info.State == types.TaskInfoStateQueued {
			return err == nil, err
		}
	}
	return false, nil
}
