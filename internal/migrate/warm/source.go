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

// Live is what a warm run needs of the host besides Source. Its methods are idempotent:
// each may run again after a crash.
type Live interface {
	migrate.PowerOner

	// MayChange returns ErrReadOnly where it is known that nobody may freeze or switch the VM
	// for us. Nil: somebody may, or nobody knows.
	MayChange(ctx context.Context, vm inventory.MoRef) error

	// Track turns change tracking on or off. fault.Unsupported: it cannot be had, be it for
	// the VM or for the role. ErrReadOnly: nor can anything else.
	Track(ctx context.Context, vm inventory.MoRef, on bool) error

	// Freeze takes a snapshot of that name, or finds the one that is there. ErrReadOnly: the
	// licence allows none. What it makes is removed by Thaw, or by whoever cleans up after a
	// run that was given up.
	Freeze(ctx context.Context, vm inventory.MoRef, name string) (Frozen, error)

	// Frozen returns the snapshot of that name; empty if there is none.
	Frozen(ctx context.Context, vm inventory.MoRef, name string) (inventory.MoRef, error)

	// Thaw removes our snapshot of that name, and merges what it left. None is no error.
	Thaw(ctx context.Context, vm inventory.MoRef, name string) error

	// SnapshotNames lists all snapshots of the VM, others' too.
	SnapshotNames(ctx context.Context, vm inventory.MoRef) ([]string, error)

	// Changed tells the areas of a disk that were written between the moment since and a
	// snapshot, or with an empty one, the powered-off VM. fault.Unsupported: nobody knows.
	Changed(ctx context.Context, vm, snapshot inventory.MoRef, disk *inventory.Disk, since inventory.ChangeID, tell func(disk.Range)) error
}

// Frozen is the disks of a VM at one moment.
type Frozen struct {
	Snapshot inventory.MoRef              `json:"snapshot"`
	IDs      map[int32]inventory.ChangeID `json:"ids,omitempty"`   // by disk; none without change tracking
	Sizes    map[int32]int64              `json:"sizes,omitempty"` // by disk, in bytes
}

// liveOf returns the host of a warm run.
func liveOf(r *migrate.Run) (Live, error) {
	l, ok := r.Rig.Source.(Live)
	if !ok {
		return nil, fault.New(fault.Internal, "this source cannot be migrated warm")
	}
	return l, nil
}

// ErrReadOnly is what Live returns where the host's licence lets its API read only, and nothing
// else may freeze or switch a VM. There are no rounds then; change tracking is the least of it.
var ErrReadOnly = errors.New("the host's licence (free ESXi) lets its API change nothing")

// ReadOnly is ErrReadOnly with why it cannot be done by SSH either, and what can be done.
func ReadOnly(why error) error {
	remedy := "shut the VM down on the host and run the command without --warm and --power-off, or give the host an evaluation or paid licence for as long as it takes"
	return fault.New(fault.KindOf(why), "%w, and it cannot be done by SSH: %w", ErrReadOnly, why).
		WithHint("%s; or %s", cmp.Or(fault.HintOf(why), "let decamp log in to the host by SSH"), remedy)
}
