package migrate

import (
	"context"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/workflow"
)

// A Migrator executes runs with a workflow engine. Several runs may be executed at the same time.
type Migrator struct {
	engine *workflow.Engine // records and executes the steps
	store  *journal.Store   // plans, journals and commands of the runs
	opts   Options          // options with defaults
	runs   *localRuns       // runs that Migrate or Visit executes now
	events *events          // journals and notifications
	warm   WarmRuns         // warm runs, from AddWarm; nil supports cold runs only

	pipeline *pipeline // steps of the runs
}

// New returns a Migrator, and registers cold runs with engine, which must not be launched yet.
func New(engine *workflow.Engine, store *journal.Store, o Options) *Migrator {
	m := &Migrator{engine: engine, store: store, opts: o.withDefaults(), runs: &localRuns{runs: map[journal.ID]*localRun{}}}
	m.events = &events{opts: &m.opts, store: store, runs: m.runs}
	m.pipeline = &pipeline{engine: engine, store: store, opts: &m.opts, runs: m.runs, events: m.events}
	m.pipeline.registerCold()
	return m
}

// Store returns the store with plans, journals and commands of the runs.
func (m *Migrator) Store() *journal.Store { return m.store }

// newLocalRun returns the state of a run in this process, without a journal.
func (m *Migrator) newLocalRun(id journal.ID, rig Environment, permit Permit) *localRun {
	return &localRun{rig: rig, permit: permit, turn: &TransferSlot{run: id, request: rig.RequestSlot, store: m.store, opts: &m.opts}}
}

// lockImages locks the images against other processes, from before their first use until release is
// called: also between transfers, and while the images are verified and published. Images that another
// process has locked are fault.Transient.
func (m *Migrator) lockImages(ctx context.Context, p journal.Plan, rig Environment) (release func(), err error) {
	vm := &inventory.VM{Ref: p.VM.Ref, Name: p.VM.Name, UUID: p.VM.UUID, InstanceUUID: p.VM.InstanceUUID}
	free, err := rig.Target.LockImages(ctx, vm)
	if err != nil {
		return nil, err
	}
	return func() {
		if err := free(); err != nil { // a dead process has no lock either
			m.opts.Log.Warn("lock of the images not released", "run", p.ID, "err", err)
		}
	}, nil
}

// driveRun executes p to its end, or until ctx ends, with its journal open. It journals how the attempt
// ended.
func (m *Migrator) driveRun(ctx context.Context, p journal.Plan, a *localRun) (err error) {
	if a.journal, err = m.store.Journal(p.ID); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.journal.Close()) }()
	if p.Warm {
		if m.warm == nil {
			return errNoWarm(p.ID)
		}
		if a.warm, err = m.warm.Ready(m.pipeline.newRun(p, Facts{}, a, ""), &a.permit); err != nil {
			return err
		}
	}
	if err := m.runs.addRun(p.ID, a); err != nil {
		return err
	}
	defer m.runs.removeRun(p.ID)
	m.events.reportEvent(p.ID, journal.Event{Kind: journal.RunStarted})
	if p.Warm {
		err = a.warm.Drive(ctx, func(ctx context.Context) error { return m.runFlow(ctx, p) })
	} else {
		err = m.runFlow(ctx, p)
	}
	a.turn.closeSlot()
	if err != nil && p.Warm {
		m.releaseSource(ctx, p, a)
	}
	switch unsaid := m.events.appendAndNotify(p.ID, endEvent(err)); {
	case err == nil:
		return unsaid // the next Migrate journals the end
	case unsaid != nil:
		m.opts.Log.Error("end of an attempt not journaled", "run", p.ID, "err", unsaid)
	}
	return err
}

// errNoWarm returns the error for a warm run without AddWarm.
func errNoWarm(id journal.ID) error {
	return fault.New(fault.Internal, "run %s is warm, and only cold runs are supported", id)
}

// releaseWait is how long a stopping run waits until a snapshot is merged. The host continues without
// us.
const releaseWait = 2 * time.Minute

// releaseSource removes the load of a stopping warm run on the source until the run continues.
func (m *Migrator) releaseSource(ctx context.Context, p journal.Plan, a *localRun) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	facts, err := m.readFacts(ctx, p.ID)
	if err != nil || facts.Warm == nil {
		return
	}
	m.warm.ReleaseSource(ctx, m.pipeline.newRun(p, facts, a, ""))
}

// WithIdleRun calls do with a run that no process executes, and locks its images meanwhile. Its events have
// the name step. st is the state of the run in the record.
func (m *Migrator) WithIdleRun(ctx context.Context, id journal.ID, rig Environment, step string, do func(r *Run, st workflow.Status) error) (err error) {
	p, err := m.store.Plan(id)
	if err != nil {
		return err
	}
	release, err := m.lockImages(ctx, p, rig)
	if err != nil {
		return err
	}
	defer release()
	a := m.newLocalRun(id, rig, Permit{})
	if a.journal, err = m.store.Journal(id); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.journal.Close()) }()
	if err := m.runs.addRun(id, a); err != nil {
		return err
	}
	defer m.runs.removeRun(id)
	st, err := m.engine.Status(ctx, string(id))
	if err != nil {
		return err
	}
	f, err := factsOf(st)
	if err != nil {
		return err
	}
	return do(m.pipeline.newRun(p, f, a, step), st)
}

// runFlow starts the flow and waits for it. If ctx ends, it stops the flow and waits until the step has
// released the images.
func (m *Migrator) runFlow(ctx context.Context, p journal.Plan) error {
	run := string(p.ID)
	if err := m.startFlow(ctx, p); err != nil {
		return err
	}
	err := m.engine.Wait(ctx, run)
	if ctx.Err() == nil {
		return err
	}
	return m.stopRun(run)
}

// startFlow starts the flow, or continues it. If processes share runs, it continues from the record of
// another process: the caller of Migrate has the claim.
func (m *Migrator) startFlow(ctx context.Context, p journal.Plan) error {
	if m.opts.Shared {
		if err := m.engine.TakeOver(ctx, string(p.ID)); !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return m.engine.Start(ctx, string(p.ID), flowOf(p), p)
}

// stopRun ends the work on a run here, and waits until its step has returned. Neither a takeover by
// another process nor an unreachable database prevents it. It returns fault.Canceled unless the run was
// completed before.
func (m *Migrator) stopRun(run string) error {
	if err := m.engine.Halt(run); err == nil || !fault.Is(err, fault.Canceled) {
		return err
	}
	return fault.New(fault.Canceled, "run %s was stopped", run).
		WithHint("run the same command again to continue it, or discard it with %s", journal.ID(run).RollbackCommand())
}

// endEvent returns the event for the end of an attempt with err.
func endEvent(err error) journal.Event {
	kind := journal.RunFailed
	switch {
	case err == nil:
		kind = journal.RunDone
	case fault.Is(err, fault.Canceled):
		kind = journal.RunStopped
	}
	return journal.Event{Kind: kind, Failure: journal.FailureOf(err)}
}

// readFacts returns the results that the last step of a run recorded.
func (m *Migrator) readFacts(ctx context.Context, id journal.ID) (Facts, error) {
	st, err := m.engine.Status(ctx, string(id))
	if err != nil {
		return Facts{}, err
	}
	return factsOf(st)
}

// factsOf returns the facts in the record of a run; the zero value if no step is recorded.
func factsOf(st workflow.Status) (f Facts, err error) {
	_, err = st.Last(&f)
	return f, err
}

// WarmRuns is the part of warm runs besides their steps. Package warm implements it.
type WarmRuns interface {
	// Ready is called before this process drives a run. It completes what the user permits by what
	// is on record.
	Ready(r *Run, p *Permit) (WarmRun, error)

	// ReleaseSource removes the run's load on the source while it is stopped.
	ReleaseSource(ctx context.Context, r *Run)

	// Restore leaves the VM at the source as it was found, but for its power.
	Restore(ctx context.Context, r *Run) error
}

// AddWarm registers warm runs with the engine, which must not be launched yet. pipeline calls do with
// the facts so far and the names of the next steps, until the run is complete.
func (m *Migrator) AddWarm(w WarmRuns, steps map[string]func(context.Context, *Run) error, pipeline func(do func(Facts, ...string) (Facts, error)) error) {
	m.warm = w
	for name, run := range steps {
		workflow.RegisterStep(m.engine, name, m.pipeline.stepFunc(name, run))
	}
	workflow.Register(m.engine, warmFlow, func(c *workflow.Context, p journal.Plan) error {
		return pipeline(func(facts Facts, names ...string) (Facts, error) { return runSteps(c, p, facts, names...) })
	})
}

// cancelPending cancels a pending run durably: if this process is killed, the run does not continue by
// itself.
func (m *Migrator) cancelPending(ctx context.Context, st workflow.Status) error {
	if st.State != workflow.Pending {
		return nil
	}
	if err := m.engine.Cancel(ctx, st.Run); err != nil {
		return err
	}
	if err := m.engine.Wait(ctx, st.Run); err != nil && !fault.Is(err, fault.Canceled) {
		return err
	}
	return ctx.Err()
}

// forgetRun removes the record and the journal of a run.
func (m *Migrator) forgetRun(ctx context.Context, id journal.ID) error {
	if err := m.engine.Forget(ctx, string(id)); err != nil {
		return err
	}
	return m.store.Remove(id)
}
