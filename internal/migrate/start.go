package migrate

import (
	"context"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
)

// startable refuses, before anything is copied, to start a VM where none can be.
func (r *Run) startable() error {
	if !r.Permit.Start {
		return nil
	}
	_, err := targets.StarterOf(r.Rig.Target)
	return err
}

// start powers the published VM on, where that is wanted. It is part of commit: of a run that was killed
// before it was on record, it finds a VM that runs. One that does not start stays published, and the run
// is not done.
func (r *Run) start(ctx context.Context) error {
	if !r.Permit.Start {
		return nil
	}
	s, err := targets.StarterOf(r.Rig.Target)
	if err != nil {
		return err
	}
	if err := r.offAtSource(ctx); err != nil {
		return err
	}
	r.tell(plan.Event{Kind: plan.Noted, Message: "starting at the target"})
	began := r.opts.Now()
	var started targets.Started
	err = r.retry(ctx, 0, func() (_ bool, err error) {
		started, err = s.Start(ctx, r.definition())
		return false, err
	})
	if err != nil {
		return notStarted(err)
	}
	r.Facts.Started = &started
	r.addStage(plan.Stage{Name: "start", Elapsed: r.opts.Now().Sub(began)})
	r.tell(plan.Event{Kind: plan.Noted, Message: "runs at the target"})
	return nil
}

// offAtSource makes sure that there will not be two: a delivery may take hours, in which somebody may
// have started the VM at its source.
func (r *Run) offAtSource(ctx context.Context) error {
	vm, err := r.plannedVM(ctx)
	if err != nil {
		return err
	}
	if vm.Power != inventory.PoweredOff {
		return fault.New(fault.Conflict, "VM %s is %s at its source again, and is not started at its target: there would be two", vm.Name, vm.Power).
			WithHint("decide which of the two is to run; to have the one at the target started, shut the other down and run the same command again")
	}
	return nil
}

// notStarted says what is left by a start that failed.
func notStarted(err error) error {
	return fault.New(fault.KindOf(err), "the VM is published, and does not start: %w", err).
		WithHint("%s; the same command starts it again, and without --start ends the run with the VM off", fault.HintOf(err))
}

// repeat is what is left of a run that was done before: to say so, and to start the VM if that is wanted.
func (m *Migrator) repeat(ctx context.Context, p plan.Plan, rig Rig, permit Permit) (Outcome, error) {
	if err := m.tellDone(p.ID); err != nil {
		return Outcome{}, err
	}
	facts, err := m.facts(ctx, p.ID)
	if err != nil {
		return Outcome{}, err
	}
	facts.Started = nil // then: who knows of now?
	r := &Run{Plan: p, Facts: facts, Rig: rig, Permit: permit, opts: m.opts, m: m, sight: new(sight)}
	if err := r.start(ctx); err != nil {
		return Outcome{}, err
	}
	return Outcome{Run: p.ID, Facts: r.Facts, Repeated: true}, nil
}
