package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/workflow"
)

// Rollback reverts a run: it removes the results at the target, including a published VM, and then
// restores the VM at the source, running if the run shut it down. This order prevents two running
// instances. Data written to the published VM is lost; a running published VM is a Conflict. A run that
// does not exist is fault.NotFound. After an error it may be called again.
func (m *Migrator) Rollback(ctx context.Context, id journal.ID, rig Environment) error {
	p, err := m.planToUndo(ctx, id)
	if err != nil {
		return err
	}
	st, err := m.engine.Status(ctx, string(id))
	if err != nil {
		return err
	}
	if st.State != workflow.Done {
		return m.Discard(ctx, id, rig)
	}
	release, err := m.lockImages(ctx, p, rig)
	if err != nil {
		return err
	}
	defer release()
	if err := m.withdrawVM(ctx, p, st, rig); err != nil {
		return fmt.Errorf("roll back run %s: %w", id, err)
	}
	m.events.reportEvent(id, journal.Event{Kind: journal.RunDiscarded})
	return m.forgetRun(ctx, id)
}

// withdrawVM removes the published VM from its target, and restores the source. It journals its
// beginning first: a withdrawal that is interrupted must be completed. A running VM is fault.Conflict,
// and nothing is removed.
func (m *Migrator) withdrawVM(ctx context.Context, p journal.Plan, st workflow.Status, rig Environment) error {
	facts, err := factsOf(st)
	if err != nil {
		return err
	}
	if err := m.events.appendEvent(p.ID, journal.Event{Kind: journal.Withdrawing, Failure: journal.FailureOf(unfinishedWithdrawal(p))}); err != nil {
		return err
	}
	err = rig.Target.Withdraw(ctx, facts.VM)
	if fault.Is(err, fault.Conflict) { // the VM runs, and nothing was removed
		return errors.Join(err, m.events.appendEvent(p.ID, journal.Event{Kind: journal.RunDone}))
	}
	if err != nil {
		return err
	}
	return m.restoreSource(ctx, m.pipeline.newRun(p, facts, m.newLocalRun(p.ID, rig, Permit{}), ""))
}
