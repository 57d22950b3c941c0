package migrate

import (
	"context"
	"errors"
	"slices"

	"github.com/decamp/decamp/internal/plan"
)

// revive leaves the VM at the source as it was found: no snapshot of ours, tracking as it was, and on
// if it was.
func (r *Run) revive(ctx context.Context) error {
	off, err := r.m.switchedOff(r.Plan.ID, r.Facts)
	if err != nil || !off && r.Facts.Warm == nil {
		return err
	}
	live, err := r.live()
	if err != nil {
		return err
	}
	var errs []error
	if r.Facts.Warm != nil {
		// In this order: tracking that is turned off ends when a snapshot is removed, or at the
		// next start.
		errs = append(errs, r.untrack(ctx, live), r.thaw(ctx), r.thawAll(ctx, ""))
	}
	if off {
		errs = append(errs, live.PowerOn(ctx, r.Plan.VM.Ref))
	}
	return errors.Join(errs...)
}

// switchedOff reports whether the run found its VM running and shut it down. A cold run told so
// before it did: nothing else is told as a change of power.
func (m *Migrator) switchedOff(id plan.ID, f Facts) (bool, error) {
	if f.Warm != nil {
		return f.Warm.WasOn, nil
	}
	events, err := m.store.Events(id)
	return slices.ContainsFunc(events, func(e plan.Event) bool { return e.Kind == plan.PowerChanged }), err
}
