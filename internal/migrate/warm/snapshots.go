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

// snapshots are the snapshots of a run's VM that decamp takes.
type snapshots struct{ run *migrate.Run }

// nextName returns the name of the next round's snapshot. It is known before the snapshot exists, and
// the record determines it. A process that took the run over includes its epoch, so that the recorded
// leftovers of the previous process never have the name of a later snapshot.
func (s *snapshots) nextName() string {
	name := fmt.Sprintf("%s%d", snapshotsOf(s.run.Record.Plan.ID), len(s.run.Record.Facts.Warm.Rounds)+1)
	if s.run.Env.Epoch > 0 {
		name += fmt.Sprintf(" e%d", s.run.Env.Epoch)
	}
	return name
}

// snapshotsOf returns the common prefix of the names of a run's snapshots, which no other run's
// snapshots have.
func snapshotsOf(id journal.ID) string { return fmt.Sprintf("decamp %s ", id) }

// removeCurrent removes the round's snapshot, if it exists.
func (s *snapshots) removeCurrent(ctx context.Context) error {
	return s.removeSnapshot(ctx, s.nextName())
}

// removeSnapshot removes a snapshot by its name, if it exists. It waits while the VM is busy.
func (s *snapshots) removeSnapshot(ctx context.Context, snapshot string) error {
	live, err := liveOf(s.run)
	if err != nil {
		return err
	}
	return s.run.Retry.DoBusy(ctx, func() error { return live.RemoveRoundSnapshot(ctx, s.run.Record.Facts.VM.Ref, snapshot) })
}

// removeAllBut removes all snapshots of the run except keep. Earlier processes do not execute the run
// any more. An empty keep removes all.
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

// findOrTake finds the round's snapshot, or takes it. A snapshot of a smaller disk belongs to another
// time, and is replaced.
func (s *snapshots) findOrTake(ctx context.Context) (frozen RoundSnapshot, err error) {
	live, err := liveOf(s.run)
	if err != nil {
		return frozen, err
	}
	err = s.run.Retry.DoBusy(ctx, func() (err error) {
		frozen, err = live.TakeRoundSnapshot(ctx, s.run.Record.Facts.VM.Ref, s.nextName())
		if err != nil || len(migrate.GrownDisks(withSizes(s.run.Record.Facts.VM, frozen.Sizes), s.run.Record.Facts.VM)) == 0 {
			return err
		}
		old := fault.New(fault.Transient, "snapshot %q is of a smaller disk", s.nextName())
		return errors.Join(old, live.RemoveRoundSnapshot(ctx, s.run.Record.Facts.VM.Ref, s.nextName()))
	})
	return frozen, err
}

// withSizes returns a copy of vm with other sizes of its disks, by key.
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
