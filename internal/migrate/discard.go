package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/workflow"
)

// Discard ends a run: it undoes every step in reverse order, and removes the record of the run. The VM
// at the source is restored: without snapshots of decamp, and powered on if the run shut it down. A
// completed run is fault.Conflict: Rollback removes published VMs. An unknown run is fault.NotFound.
func (m *Migrator) Discard(ctx context.Context, id journal.ID, rig Environment) error {
	p, err := m.planToUndo(ctx, id)
	if err != nil {
		return err
	}
	release, err := m.lockImages(ctx, p, rig)
	if err != nil {
		return err
	}
	defer release()
	st, err := m.engine.Status(ctx, string(id))
	if err != nil {
		return err
	}
	if st.State == workflow.Done {
		return fault.New(fault.Conflict, "run %s is done and its VM is published", id).
			WithHint("decamp rollback %s --withdraw removes the VM from %s; data written to it is lost", id, p.Target)
	}
	facts, err := factsOf(st)
	if err != nil {
		return err
	}
	if err := m.isPublished(ctx, st, facts, rig); err != nil {
		return err
	}
	if err := m.cancelPending(ctx, st); err != nil {
		return err
	}
	if err := m.undoSteps(ctx, p, facts, rig); err != nil {
		return fmt.Errorf("discard run %s: %w", id, err)
	}
	m.events.reportEvent(id, journal.Event{Kind: journal.RunDiscarded})
	return m.forgetRun(ctx, id)
}

// planToUndo returns the plan of a run. A run that neither this machine nor the record of the runs
// contains is fault.NotFound: it never began, or was undone. A run whose journal is on another machine
// is fault.Conflict: only the journal shows whether the run shut its VM down.
func (m *Migrator) planToUndo(ctx context.Context, id journal.ID) (journal.Plan, error) {
	p, err := m.store.Plan(id)
	if !fault.Is(err, fault.NotFound) {
		return p, err
	}
	st, statusErr := m.engine.Status(ctx, string(id))
	if statusErr != nil || st.State == workflow.None {
		return p, cmp.Or(statusErr, err)
	}
	f, factsErr := factsOf(st)
	if factsErr != nil {
		return p, factsErr
	}
	left := "its images"
	if len(f.Images) > 0 {
		var paths []string
		for _, img := range f.Images {
			paths = append(paths, img.Path)
		}
		left = strings.Join(paths, ", ")
	}
	by := ""
	if st.Executor != "" {
		by = " but in that of worker " + st.Executor
	}
	return p, fault.New(fault.Conflict, "run %s cannot be undone on this machine: its journal is not in this state directory%s. The run may have left %s, and its VM may be powered off at the source", id, by, left).
		WithHint("run the command again while only the worker that began the run is active; or remove the files manually and power the VM on at the source")
}

// isPublished returns fault.Conflict if the VM was published, or may have been: if the source were
// powered on again, two instances would run.
func (m *Migrator) isPublished(ctx context.Context, st workflow.Status, f Facts, rig Environment) error {
	var after Facts
	committed, err := st.Result(StepCommit, &after)
	if err != nil || f.VM == nil {
		return err
	}
	if off, err := switchedOff(m.store, journal.ID(st.Run), f); err != nil || !off {
		return err
	}
	if _, taken := rig.Target.Plan(ctx, f.VM); committed || fault.Is(taken, fault.Conflict) {
		return fault.New(fault.Conflict, "VM %s was published", f.VM.Name).
			WithHint("run the same migration again to complete it; if the target has another VM, move it away and cancel again")
	}
	return nil
}

// undoSteps undoes all steps in reverse order, and restores the source. An error does not stop it; it
// returns all errors.
func (m *Migrator) undoSteps(ctx context.Context, p journal.Plan, f Facts, rig Environment) error {
	r := m.pipeline.newRun(p, f, m.newLocalRun(p.ID, rig, Permit{}), "")
	var errs []error
	steps := Steps()
	for i := len(steps) - 1; i >= 0; i-- {
		if err := steps[i].Undo(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", steps[i].Name(), err))
		}
	}
	return errors.Join(append(errs, m.restoreSource(ctx, r))...)
}

// restoreSource leaves the VM at the source as it was found: without our snapshots, with change
// tracking as it was, and powered on if the run shut it down.
func (m *Migrator) restoreSource(ctx context.Context, r *Run) error {
	facts := r.Record.Facts
	off, err := switchedOff(m.store, r.Record.Plan.ID, facts)
	if err != nil || !off && facts.Warm == nil {
		return err
	}
	source, ok := r.Env.Source.(PowerOner)
	switch {
	case !ok:
		return fault.New(fault.Internal, "this source cannot power VMs on")
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

// switchedOff reports whether the run found its VM running and shut it down. A cold run records that
// before it does so. No other event records a change of power.
func switchedOff(s *journal.Store, id journal.ID, f Facts) (bool, error) {
	if f.Warm != nil {
		return f.Warm.WasOn, nil
	}
	events, err := s.Events(id)
	return slices.ContainsFunc(events, func(e journal.Event) bool { return e.Kind == journal.PowerChanged }), err
}
