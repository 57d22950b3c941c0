package warm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// snapshots are ours of the VM of a run at its source.
type snapshots struct{ run *migrate.Run }

// nextName returns the name of the next round's snapshot: it is known before the snapshot exists, and the
// record shows which one it is. A process that took the run over includes its epoch, so that the
// recorded leftovers of the previous process never have the name of a later snapshot.
func (s *snapshots) nextName() string {
	name := fmt.Sprintf("%s%d", snapshotsOf(s.run.Record.Plan.ID), len(s.run.Record.Facts.Warm.Rounds)+1)
	if s.run.Rig.Epoch > 0 {
		name += fmt.Sprintf(" e%d", s.run.Rig.Epoch)
	}
	return name
}

// snapshotsOf is what the names of a run's snapshots begin with, and of no other run's.
func snapshotsOf(id journal.ID) string { return fmt.Sprintf("decamp %s ", id) }

// removeCurrent removes the round's snapshot, if it is there.
func (s *snapshots) removeCurrent(ctx context.Context) error {
	return s.removeSnapshot(ctx, s.nextName())
}

func (s *snapshots) removeSnapshot(ctx context.Context, snapshot string) error {
	live, err := liveOf(s.run)
	if err != nil {
		return err
	}
	return s.run.Retry.DoBusy(ctx, func() error { return live.Thaw(ctx, s.run.Record.Facts.VM.Ref, snapshot) })
}

// removeAllBut removes all snapshots of the run except keep: an earlier process, however far it came, does
// not execute the run any more.
func (s *snapshots) removeAllBut(ctx context.Context, keep string) error {
	live, err := liveOf(s.run)
	if err != nil {
		return err
	}
	var names []string
	err = s.run.Retry.Do(ctx, 0, func() (_ bool, err error) {
		names, err = live.SnapshotNames(ctx, s.run.Record.Facts.VM.Ref)
		return false, err
	})
	errs := []error{err}
	for _, name := range names {
		if strings.HasPrefix(name, snapshotsOf(s.run.Record.Plan.ID)) && name != keep {
			errs = append(errs, s.removeSnapshot(ctx, name))
		}
	}
	return errors.Join(errs...)
}

// findOrTake finds the round's snapshot, or takes it. One that is of a smaller disk is of
// another time, and makes room.
func (s *snapshots) findOrTake(ctx context.Context) (frozen Frozen, err error) {
	live, err := liveOf(s.run)
	if err != nil {
		return frozen, err
	}
	err = s.run.Retry.DoBusy(ctx, func() (err error) {
		frozen, err = live.Freeze(ctx, s.run.Record.Facts.VM.Ref, s.nextName())
		if err != nil || len(migrate.Larger(withSizes(s.run.Record.Facts.VM, frozen.Sizes), s.run.Record.Facts.VM)) == 0 {
			return err
		}
		old := fault.New(fault.Transient, "snapshot %q is of a smaller disk", s.nextName())
		return errors.Join(old, live.Thaw(ctx, s.run.Record.Facts.VM.Ref, s.nextName()))
	})
	return frozen, err
}

// withSizes is vm with other sizes of its disks, by key.
func withSizes(vm *inventory.VM, sizes map[int32]int64) *inventory.VM {
	other := *vm
	other.Disks = slices.Clone(vm.Disks)
	for i := range other.Disks {
		if size, ok := sizes[other.Disks[i].Key]; ok {
			other.Disks[i].Capacity = size
		}
	}
	return &other
}
