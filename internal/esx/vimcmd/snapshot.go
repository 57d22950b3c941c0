package vimcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

const (
	// showWait is the time in which the API must show the effect of a successful
	// vim-cmd. vim-cmd may return before its task ends.
	showWait = time.Minute

	// takeWait is how long a canceled CreateSnapshot waits for a snapshot in progress.
	// A snapshot that appeared later would not be removed.
	takeWait = time.Minute
)

// createJobName returns the name of the job that creates a snapshot. There is at most
// one at a time.
func createJobName(vm inventory.MoRef, name string) string {
	return shell.JobName("snapshot", string(vm), name)
}

// removeJobName returns the name of the job that removes a snapshot.
func removeJobName(vm inventory.MoRef, name string) string {
	return shell.JobName("unsnapshot", string(vm), name)
}

// CreateSnapshot freezes the disks of a VM. If an earlier call, of this or another
// process, is still creating a snapshot with that name, it waits and returns that
// snapshot.
func (h *Host) CreateSnapshot(ctx context.Context, vm inventory.MoRef, o esx.SnapshotSpec) (inventory.MoRef, error) {
	ref, err := h.createSnapshot(ctx, vm, o)
	if err != nil {
		return "", fmt.Errorf("take snapshot %q of VM %s by SSH: %w", o.Name, vm, err)
	}
	return ref, nil
}

// createSnapshot does the work of CreateSnapshot without the context of errors.
func (h *Host) createSnapshot(ctx context.Context, vm inventory.MoRef, o esx.SnapshotSpec) (inventory.MoRef, error) {
	if o.Quiesce {
		return "", fault.New(fault.Unsupported, "guests are not quiesced by SSH").WithHint("do not quiesce: the disks are then as after a power failure")
	}
	sh, err := h.shellOf(ctx, vm)
	if err != nil {
		return "", err
	}
	// A job of an earlier call may still create the snapshot.
	if err := sh.Jobs.Follow(ctx, createJobName(vm, o.Name)); err != nil {
		return "", err
	}
	if ref, found, err := h.Session.FindSnapshot(ctx, vm, o.Name); found || err != nil {
		return ref, err
	}
	ctx, cancel := withDelayedEnd(ctx, takeWait)
	defer cancel()
	asked := sh.TakeSnapshot(ctx, createJobName(vm, o.Name), vm, o.Name, o.Description)
	// The API decides whether the snapshot exists. The error of vim-cmd only counts if
	// it does not.
	entry, there, err := h.Session.AwaitSnapshot(ctx, vm, o.Name, true, waitAfter(asked))
	if err == nil && !there {
		err = asked
	}
	if err == nil && !there {
		err = fault.New(fault.Conflict, "vim-cmd reported no error, and the snapshot does not exist").WithHint("see the VM's recent tasks, and hostd.log on the host")
	}
	return entry.Ref, err
}

// withDelayedEnd returns a context that ends the duration more after ctx. The caller
// must call the returned function.
func withDelayedEnd(ctx context.Context, more time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		end := time.AfterFunc(more, cancel)
		context.AfterFunc(longer, func() { end.Stop() })
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// waitAfter returns how long to wait for an effect: 0 if the command failed, since the
// current state then decides.
func waitAfter(asked error) time.Duration {
	if asked != nil {
		return 0
	}
	return showWait
}

// DropSnapshot removes the snapshot with that name, if it exists. It first waits for a
// snapshot that is still being created.
func (h *Host) DropSnapshot(ctx context.Context, vm inventory.MoRef, name string) error {
	if err := h.dropSnapshot(ctx, vm, name); err != nil {
		return fmt.Errorf("remove snapshot %q of VM %s by SSH: %w", name, vm, err)
	}
	return nil
}

// dropSnapshot does the work of DropSnapshot without the context of errors.
func (h *Host) dropSnapshot(ctx context.Context, vm inventory.MoRef, name string) error {
	sh, err := h.shellOf(ctx, vm)
	if err != nil {
		return err
	}
	if err := errors.Join(sh.Jobs.Follow(ctx, createJobName(vm, name)), sh.Jobs.Follow(ctx, removeJobName(vm, name))); err != nil {
		return err
	}
	entry, there, err := h.Session.AwaitSnapshot(ctx, vm, name, false, 0)
	if err != nil {
		return err
	}
	if there {
		if err := h.removeExisting(ctx, sh, vm, name, entry); err != nil {
			return err
		}
	}
	return h.checkMerged(ctx, vm)
}

// removeExisting removes a snapshot and waits until the API no longer lists it.
func (h *Host) removeExisting(ctx context.Context, sh *shell.Shell, vm inventory.MoRef, name string, entry esx.SnapshotEntry) error {
	if err := checkSnapshot(ctx, sh, vm, name, entry); err != nil {
		return err
	}
	asked := sh.RemoveSnapshot(ctx, removeJobName(vm, name), vm, entry.ID)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	_, there, err := h.Session.AwaitSnapshot(ctx, vm, name, false, waitAfter(asked))
	switch {
	case err != nil || !there:
		return err
	case asked != nil:
		return asked
	}
	return fault.New(fault.Conflict, "vim-cmd reported no error, and the snapshot still exists").WithHint("see the VM's recent tasks, and hostd.log on the host")
}

// checkSnapshot returns nil if the snapshot has no children, and if vim-cmd has the
// same number for it as the API. Otherwise vim-cmd could remove another snapshot, and
// the error is fault.Conflict.
func checkSnapshot(ctx context.Context, sh *shell.Shell, vm inventory.MoRef, name string, entry esx.SnapshotEntry) error {
	if entry.Children > 0 {
		return fault.New(fault.Conflict, "another snapshot was created on top of it").
			WithHint("remove the other snapshot first, if it is not required: vim-cmd may remove it as well")
	}
	list, err := sh.Snapshots(ctx, vm)
	if err != nil {
		return err
	}
	for _, l := range list {
		// The entry must have both the number and the name, and no other entry may have
		// one of them.
		if (l.ID == entry.ID) != (l.Name == name) {
			return fault.New(fault.Conflict, "vim-cmd lists %d %q, the API has %d %q", l.ID, l.Name, entry.ID, name).
				WithHint("remove it manually: host client, Actions, Snapshots")
		}
	}
	return nil
}

// checkMerged returns fault.Conflict if the VM has delta disks without a snapshot.
func (h *Host) checkMerged(ctx context.Context, vm inventory.MoRef) error {
	v, err := h.Session.BareVM(ctx, vm)
	if err != nil || !v.ConsolidationNeeded {
		return err
	}
	return fault.New(fault.Conflict, "its disks require consolidation, for which vim-cmd has no command").
		WithHint("a process, such as a backup, has a delta disk open: end it, and consolidate in the host client (Actions, Snapshots, Consolidate disks); then run the command again")
}
