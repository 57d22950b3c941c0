package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/plan"
)

// snapshot is the name of the next round's: it is known before there is one, and which one
// it is, is on record. Who took the run over from somebody else names his by his epoch: so
// what the other one has on record as left over, and removes one day, is never a later one's.
func (r *Run) snapshot() string {
	name := fmt.Sprintf("%s%d", snapshotsOf(r.Plan.ID), len(r.Facts.Warm.Rounds)+1)
	if r.Rig.Epoch > 0 {
		name += fmt.Sprintf(" e%d", r.Rig.Epoch)
	}
	return name
}

// snapshotsOf is what the names of a run's snapshots begin with, and of no other run's.
func snapshotsOf(id plan.ID) string { return fmt.Sprintf("decamp %s ", id) }

// thaw removes the round's snapshot, if it is there.
func (r *Run) thaw(ctx context.Context) error { return r.remove(ctx, r.snapshot()) }

func (r *Run) remove(ctx context.Context, snapshot string) error {
	live, err := r.live()
	if err != nil {
		return err
	}
	return r.retryBusy(ctx, func() error { return live.Thaw(ctx, r.Facts.VM.Ref, snapshot) })
}

// thawAll removes all snapshots of the run but the one to keep: whoever drove it before, and
// however far he came, he does not any more.
func (r *Run) thawAll(ctx context.Context, keep string) error {
	live, err := r.live()
	if err != nil {
		return err
	}
	var names []string
	err = r.retry(ctx, 0, func() (_ bool, err error) {
		names, err = live.SnapshotNames(ctx, r.Facts.VM.Ref)
		return false, err
	})
	errs := []error{err}
	for _, name := range names {
		if strings.HasPrefix(name, snapshotsOf(r.Plan.ID)) && name != keep {
			errs = append(errs, r.remove(ctx, name))
		}
	}
	return errors.Join(errs...)
}
