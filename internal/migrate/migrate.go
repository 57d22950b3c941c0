package migrate

import (
	"context"
	"errors"
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/workflow"
)

// Outcome is the result of a completed run.
type Outcome struct {
	Run      journal.ID `json:"run"`                // id of the run
	Facts    Facts      `json:"facts"`              // results of all steps
	Repeated bool       `json:"repeated,omitempty"` // the run was completed before, and this call changed nothing
}

// Migrate executes p, or continues it after the last recorded step. A plan that is completed and still
// published is not executed again. Images that another process has locked are fault.Transient. If ctx
// ends, the current step is stopped and the run can be continued; the error is then fault.Canceled.
func (m *Migrator) Migrate(ctx context.Context, p journal.Plan, rig Environment, permit Permit) (Outcome, error) {
	release, err := m.lockImages(ctx, p, rig)
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	p, repeated, err := m.admitPlan(ctx, p, rig)
	if errors.Is(err, workflow.ErrRefused) {
		p, err = m.restartRefused(ctx, p, err)
	}
	if err != nil {
		return Outcome{}, err
	}
	if repeated {
		return m.repeatDone(ctx, p, rig, permit)
	}
	err = m.driveRun(ctx, p, m.newLocalRun(p.ID, rig, permit))
	if errors.Is(err, workflow.ErrRefused) {
		if p, err = m.restartRefused(ctx, p, err); err == nil {
			err = m.driveRun(ctx, p, m.newLocalRun(p.ID, rig, permit))
		}
	}
	if err != nil {
		return Outcome{}, err
	}
	facts, err := m.readFacts(ctx, p.ID)
	return Outcome{Run: p.ID, Facts: facts}, err
}

// admitPlan records the plan. It reports whether the run was completed before and is still published.
// Three kinds of runs start again: a completed run whose published VM is missing, a run with another
// plan that has no images yet, and a run that gets other hardware. Manifests keep their copied data. A
// run with an incomplete withdrawal is fault.Conflict.
func (m *Migrator) admitPlan(ctx context.Context, p journal.Plan, rig Environment) (_ journal.Plan, repeated bool, err error) {
	st, err := m.engine.Status(ctx, string(p.ID))
	if err != nil {
		return p, false, err
	}
	facts, err := factsOf(st)
	if err != nil {
		return p, false, err
	}
	if st.State == workflow.Done {
		if err := m.notWithdrawing(p); err != nil {
			return p, false, err
		}
		if _, err := rig.Target.Plan(ctx, facts.VM); fault.Is(err, fault.Conflict) {
			return p, true, nil
		}
	}
	recorded, err := m.store.Create(p)
	switch {
	case fault.Is(err, fault.Conflict) && st.State != workflow.Done && m.otherHardware(p, facts):
		return m.changePlan(ctx, p, st)
	case st.State == workflow.Done || fault.Is(err, fault.Conflict) && len(facts.Images) == 0:
		return m.replaceRun(ctx, p, st)
	}
	return recorded, false, err
}

// otherHardware reports whether a recorded run can continue as p, which differs only in hardware and in
// changes to the guest: no image was changed yet, and the VM is not identified by the old values.
func (m *Migrator) otherHardware(p journal.Plan, f Facts) bool {
	was, err := m.store.Plan(p.ID)
	if err != nil || f.Verified != nil || p.Warm {
		return false
	}
	was.Hardware, was.Engine, was.GuestAgent = p.Hardware, p.Engine, p.GuestAgent
	return was.Same(p) == nil
}

// changePlan starts a run again with another plan and its existing images. Its journal keeps the
// original state of the VM.
func (m *Migrator) changePlan(ctx context.Context, p journal.Plan, st workflow.Status) (journal.Plan, bool, error) {
	err := m.cancelPending(ctx, st)
	if err == nil {
		err = m.engine.Forget(ctx, st.Run)
	}
	if err == nil {
		err = m.store.Change(p)
	}
	return p, false, err
}

// restartRefused removes a run whose record is refused, so that it starts again. Manifests keep its
// copied data. A completed run does not start again, because its VM is published; restartRefused then
// returns why.
func (m *Migrator) restartRefused(ctx context.Context, p journal.Plan, why error) (journal.Plan, error) {
	st, err := m.engine.Status(ctx, string(p.ID))
	switch {
	case err != nil:
		return p, err
	case st.State == workflow.Done:
		return p, why
	}
	m.opts.Log.Warn("run begins again", "run", p.ID, "err", why)
	p, _, err = m.replaceRun(ctx, p, st)
	return p, err
}

// replaceRun removes a run with its record, and records the plan p in its place. Manifests stay.
func (m *Migrator) replaceRun(ctx context.Context, p journal.Plan, st workflow.Status) (journal.Plan, bool, error) {
	if err := m.cancelPending(ctx, st); err != nil {
		return p, false, err
	}
	if err := m.forgetRun(ctx, p.ID); err != nil {
		return p, false, err
	}
	p, err := m.store.Create(p)
	return p, false, err
}

// repeatDone handles a run that was completed before: it reports that, and starts the VM if requested.
func (m *Migrator) repeatDone(ctx context.Context, p journal.Plan, rig Environment, permit Permit) (Outcome, error) {
	if err := m.events.recordDone(p.ID); err != nil {
		return Outcome{}, err
	}
	facts, err := m.readFacts(ctx, p.ID)
	if err != nil {
		return Outcome{}, err
	}
	facts.Started = nil // of the earlier call: the VM may be off now
	r := m.pipeline.newRun(p, facts, m.newLocalRun(p.ID, rig, permit), "")
	if err := startVM(ctx, r); err != nil {
		return Outcome{}, err
	}
	return Outcome{Run: p.ID, Facts: r.Record.Facts, Repeated: true}, nil
}

// notWithdrawing returns fault.Conflict if the withdrawal of a completed run began and did not end.
func (m *Migrator) notWithdrawing(p journal.Plan) error {
	events, err := m.store.Events(p.ID)
	if fault.Is(err, fault.NotFound) { // the journal is on another machine
		return nil
	}
	for _, e := range slices.Backward(events) {
		switch e.Kind {
		case journal.Withdrawing:
			return unfinishedWithdrawal(p)
		case journal.RunDone:
			return nil
		}
	}
	return err
}

// unfinishedWithdrawal returns the error for a VM whose withdrawal did not end.
func unfinishedWithdrawal(p journal.Plan) error {
	return fault.New(fault.Conflict, "VM %s may be partly removed from %s: its withdrawal did not end", p.VM.Name, p.Target).
		WithHint("complete it with decamp rollback %s --withdraw; then migrate the VM again", fault.Quote(string(p.ID)))
}
