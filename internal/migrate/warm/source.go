package warm

import (
	"cmp"
	"context"
	"errors"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
)

// Live is the part of a host that a warm run needs besides Source. Its methods are idempotent: each may
// run again after a crash.
type Live interface {
	migrate.PowerOner

	// MayChange returns ErrReadOnly if snapshots and power changes of the VM are known to be
	// impossible. nil means that they are possible or unknown.
	MayChange(ctx context.Context, vm inventory.MoRef) error

	// Track turns change tracking on or off. fault.Unsupported: it cannot be had, be it for
	// the VM or for the role. ErrReadOnly: nor can anything else.
	Track(ctx context.Context, vm inventory.MoRef, on bool) error

	// TakeRoundSnapshot takes a snapshot of that name, or finds the existing one. It returns ErrReadOnly if the
	// licence allows none. RemoveRoundSnapshot removes the snapshot, or a cleanup after a discarded run.
	TakeRoundSnapshot(ctx context.Context, vm inventory.MoRef, name string) (RoundSnapshot, error)

	// FindRoundSnapshot returns the snapshot of that name; empty if it does not exist.
	FindRoundSnapshot(ctx context.Context, vm inventory.MoRef, name string) (inventory.MoRef, error)

	// RemoveRoundSnapshot removes the snapshot of that name and merges its delta. A missing snapshot is not an error.
	RemoveRoundSnapshot(ctx context.Context, vm inventory.MoRef, name string) error

	// SnapshotNames lists all snapshots of the VM, others' too.
	SnapshotNames(ctx context.Context, vm inventory.MoRef) ([]string, error)

	// Changed returns the areas of a disk that were written between since and a snapshot, or until now
	// for a powered-off VM if snapshot is empty. It returns fault.Unsupported if they are unknown.
	Changed(ctx context.Context, vm, snapshot inventory.MoRef, disk *inventory.Disk, since inventory.ChangeID, tell func(disk.Range)) error
}

// RoundSnapshot is a snapshot with the state of the VM's disks in it.
type RoundSnapshot struct {
	Snapshot inventory.MoRef              `json:"snapshot"`        // reference of the snapshot
	IDs      map[int32]inventory.ChangeID `json:"ids,omitempty"`   // change IDs by disk; empty without change tracking
	Sizes    map[int32]int64              `json:"sizes,omitempty"` // sizes by disk, in bytes
}

// liveOf returns the source of a warm run; fault.Internal if the source does not support warm runs.
func liveOf(r *migrate.Run) (Live, error) {
	l, ok := r.Env.Source.(Live)
	if !ok {
		return nil, fault.New(fault.Internal, "this source cannot be migrated warm")
	}
	return l, nil
}

// ErrReadOnly is the error of Live if the host's licence makes its API read-only, and no other way
// permits snapshots and power changes. Warm runs are impossible then.
var ErrReadOnly = errors.New("the host's licence (free ESXi) does not permit changes through its API")

// ReadOnly returns ErrReadOnly with the reason why SSH is not possible either, and a remedy.
func ReadOnly(why error) error {
	remedy := "shut the VM down on the host and run the command without --warm and --power-off, or install an evaluation or paid licence on the host during the migration"
	return fault.New(fault.KindOf(why), "%w, and SSH is not possible: %w", ErrReadOnly, why).
		WithHint("%s; or %s", cmp.Or(fault.HintOf(why), "permit decamp to log in to the host by SSH"), remedy)
}
