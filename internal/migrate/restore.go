package migrate

import (
	"context"
	"errors"
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/plan"
)

// restore leaves the VM at the source as it was found: without our snapshots, with change tracking as it
// was, and on if the run shut it down.
func (m *Migrator) restore(ctx context.Context, r *Run) error {
	facts := r.Record.Facts
	off, err := switchedOff(m.store, r.Record.Plan.ID, facts)
	if err != nil || !off && facts.Warm == nil {
		return err
	}
	source, ok := r.Rig.Source.(PowerOner)
	switch {
	case !ok:
		return fault.New(fault.Internal, "this source powers no VM on")
	case facts.Warm != nil && m.warm == nil:
		return errNoWarm(r.Record.Plan.ID)
	}
	var errs []error
	if facts.Warm != nil {
		errs = append(errs, m.warm.Restore(ctx, r))
	}
	if off {
		errs = append(errs, source.PowerOn(ctx, r.Record.Plan.VM.Ref))
	}
	return errors.Join(errs...)
}

// switchedOff reports whether the run found its VM running and shut it down. A cold run told so
// before it did: nothing else is told as a change of power.
func switchedOff(s *plan.Store, id plan.ID, f Facts) (bool, error) {
	if f.Warm != nil {
		return f.Warm.WasOn, nil
	}
	events, err := s.Events(id)
	return slices.ContainsFunc(events, func(e plan.Event) bool { return e.Kind == plan.PowerChanged }), err
}
