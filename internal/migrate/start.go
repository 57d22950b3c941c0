package migrate

import (
	"context"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
)

// start powers the published VM on, where that is wanted. It is part of commit: of a run that was killed
// before it was on record, it finds a VM that runs. One that does not start stays published, and the run
// is not done.
func start(ctx context.Context, r *Run) error {
	if !r.Permit.Start {
		return nil
	}
	s, err := targets.StarterOf(r.Rig.Target)
	if err != nil {
		return err
	}
	if err := r.VM.checkOff(ctx); err != nil {
		return err
	}
	r.Record.Tell(plan.Event{Kind: plan.Noted, Message: "starting at the target"})
	began := r.Options.Now()
	var started targets.Started
	err = r.Retry.Do(ctx, 0, func() (_ bool, err error) {
		started, err = s.Start(ctx, Definition(r))
		return false, err
	})
	if err != nil {
		return notStarted(err)
	}
	r.Record.Facts.Started = &started
	r.Record.AddStage(plan.Stage{Name: "start", Elapsed: r.Options.Now().Sub(began)})
	r.Record.Tell(plan.Event{Kind: plan.Noted, Message: "runs at the target"})
	return nil
}

// notStarted says what is left by a start that failed.
func notStarted(err error) error {
	return fault.New(fault.KindOf(err), "the VM is published, and does not start: %w", err).
		WithHint("%s; the same command starts it again, and without --start ends the run with the VM off", fault.HintOf(err))
}

// repeat is what is left of a run that was done before: to say so, and to start the VM if that is wanted.
func (m *Migrator) repeat(ctx context.Context, p plan.Plan, rig Rig, permit Permit) (Outcome, error) {
	if err := m.events.recordDone(p.ID); err != nil {
		return Outcome{}, err
	}
	facts, err := m.facts(ctx, p.ID)
	if err != nil {
		return Outcome{}, err
	}
	facts.Started = nil // then: who knows of now?
	r := m.newRun(p, facts, m.newAttendance(p.ID, rig, permit), "")
	if err := start(ctx, r); err != nil {
		return Outcome{}, err
	}
	return Outcome{Run: p.ID, Facts: r.Record.Facts, Repeated: true}, nil
}
