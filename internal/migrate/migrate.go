package migrate

import (
	"context"
	"errors"
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/workflow"
)

// Outcome is what a finished run leaves.
type Outcome struct {
	Run      journal.ID `json:"run"`
	Facts    Facts      `json:"facts"`
	Repeated bool       `json:"repeated,omitempty"` // it was done before, and nothing was done now
}

// Migrate carries out p, or continues it where an earlier attempt ended. A plan that is
// done and still published is not done again. Images that another process has are
// fault.Transient. If ctx ends, the step under way is stopped
// and the run can be continued; the error is then fault.Canceled.
func (m *Migrator) Migrate(ctx context.Context, p journal.Plan, rig Rig, permit Permit) (Outcome, error) {
	release, err := m.hold(ctx, p, rig)
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	p, repeated, err := m.admit(ctx, p, rig)
	if errors.Is(err, workflow.ErrRefused) {
		p, err = m.anew(ctx, p, err)
	}
	if err != nil {
		return Outcome{}, err
	}
	if repeated {
		return m.repeat(ctx, p, rig, permit)
	}
	err = m.attend(ctx, p, m.newAttendance(p.ID, rig, permit))
	if errors.Is(err, workflow.ErrRefused) {
		if p, err = m.anew(ctx, p, err); err == nil {
			err = m.attend(ctx, p, m.newAttendance(p.ID, rig, permit))
		}
	}
	if err != nil {
		return Outcome{}, err
	}
	facts, err := m.facts(ctx, p.ID)
	return Outcome{Run: p.ID, Facts: facts}, err
}

// admit records the plan. A run that is done begins afresh if what it published is gone,
// and so does one that is not the same intent but got no further than preflight, or is to have
// other hardware: what it copied is found by its manifests. A run whose withdrawal did not end is a Conflict.
func (m *Migrator) admit(ctx context.Context, p journal.Plan, rig Rig) (_ journal.Plan, repeated bool, err error) {
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
		return m.change(ctx, p, st)
	case st.State == workflow.Done || fault.Is(err, fault.Conflict) && len(facts.Images) == 0:
		return m.replace(ctx, p, st)
	}
	return recorded, false, err
}

// otherHardware reports whether a recorded run may go on as p, which differs from it by the
// hardware and what is done in the guest only: no image was changed yet, and its VM is not known by how it was found.
func (m *Migrator) otherHardware(p journal.Plan, f Facts) bool {
	was, err := m.store.Plan(p.ID)
	if err != nil || f.Verified != nil || p.Warm {
		return false
	}
	was.Hardware, was.Engine, was.GuestAgent = p.Hardware, p.Engine, p.GuestAgent
	return was.Same(p) == nil
}

// change begins a run again as another intent, with what it has on disk. Its journal still knows how
// the VM was found.
func (m *Migrator) change(ctx context.Context, p journal.Plan, st workflow.Status) (journal.Plan, bool, error) {
	err := m.halt(ctx, st)
	if err == nil {
		err = m.engine.Forget(ctx, st.Run)
	}
	if err == nil {
		err = m.store.Change(p)
	}
	return p, false, err
}

// anew forgets a run whose record is refused, so that it begins again. What it copied is found by
// its manifests. Of a run that is done the VM is published, so it does not begin again.
func (m *Migrator) anew(ctx context.Context, p journal.Plan, why error) (journal.Plan, error) {
	st, err := m.engine.Status(ctx, string(p.ID))
	switch {
	case err != nil:
		return p, err
	case st.State == workflow.Done:
		return p, why
	}
	m.opts.Log.Warn("run begins again", "run", p.ID, "err", why)
	p, _, err = m.replace(ctx, p, st)
	return p, err
}

// replace forgets a run of which nothing is left but its record.
func (m *Migrator) replace(ctx context.Context, p journal.Plan, st workflow.Status) (journal.Plan, bool, error) {
	if err := m.halt(ctx, st); err != nil {
		return p, false, err
	}
	if err := m.forget(ctx, p.ID); err != nil {
		return p, false, err
	}
	p, err := m.store.Create(p)
	return p, false, err
}

// repeat is what is left of a run that was done before: to say so, and to start the VM if that is wanted.
func (m *Migrator) repeat(ctx context.Context, p journal.Plan, rig Rig, permit Permit) (Outcome, error) {
	if err := m.events.recordDone(p.ID); err != nil {
		return Outcome{}, err
	}
	facts, err := m.facts(ctx, p.ID)
	if err != nil {
		return Outcome{}, err
	}
	facts.Started = nil // then: who knows of now?
	r := m.pipeline.newRun(p, facts, m.newAttendance(p.ID, rig, permit), "")
	if err := start(ctx, r); err != nil {
		return Outcome{}, err
	}
	return Outcome{Run: p.ID, Facts: r.Record.Facts, Repeated: true}, nil
}

// notWithdrawing returns an error if the withdrawal of a run that is done began and did not end.
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

func unfinishedWithdrawal(p journal.Plan) error {
	return fault.New(fault.Conflict, "VM %s may be partly removed from %s: its withdrawal began and did not end", p.VM.Name, p.Target).
		WithHint("decamp rollback %s --withdraw ends it; after that the VM can be migrated again", fault.Quote(string(p.ID)))
}
