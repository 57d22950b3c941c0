package mover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/migrate/warm"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/trace"
	"github.com/decamp/decamp/internal/workflow"
)

// Mover implements fleet.Mover: it migrates VMs of plans as decamp migrate migrates one. VMs of one
// source share a session, the connections to its hosts, and their limits. A Mover is safe for
// concurrent use.
type Mover struct {
	a         *assemble.Assembler // state of this machine, and prompts
	database  *fleetdb.Database   // fleet database; nil for a mover that only reads plans
	engine    *workflow.Engine    // workflow engine of the state directory
	store     *journal.Store      // journals of runs
	migrator  *migrate.Migrator   // executes runs
	leftovers *cleanup.Store      // records of changes on hosts
	offers    map[string]string   // storages behind this worker's folders
	pacer     *pacer              // limits the rates of transfers
	cleaner   *cleaner            // reverts changes on unused sources
	Command   bool                // a command of the user, with the user's files and terminal; not a server or a worker
	Trials    chan struct{}       // has room for as many as may boot at a time

	Hooks bool // hooks of plans are run

	mu       sync.Mutex                // guards the fields below
	sources  map[string]*planSource    // sources by plan
	replaced []*planSource             // sources of plans that were submitted again under the same name
	logins   map[string]*login.Limiter // login limits by source, and by host
	events   map[journal.ID]*runEvents // runs under way here
}

var _ fleet.Mover = (*Mover)(nil)

// New returns a mover that can only read plans. Its methods that require a database must not be called.
func New(a *assemble.Assembler) *Mover {
	return &Mover{a: a, sources: map[string]*planSource{}, logins: map[string]*login.Limiter{}, events: map[journal.ID]*runEvents{}}
}

// Open opens the state directory for the worker w and launches the workflow engine. Runs that were
// interrupted continue with Move. url is the database that machines share; it is empty for a database
// in a file, whose records are in the state directory.
func Open(ctx context.Context, a *assemble.Assembler, url string, insecure bool, w fleetdb.Worker, r *fleetdb.Database) (*Mover, error) {
	state, err := a.StateDir()
	if err != nil {
		return nil, err
	}
	m := New(a)
	m.database, m.offers = r, w.Offers
	cfg := workflow.Config{Dir: state, Log: a.Log}
	m.store, m.leftovers = journal.NewStore(state), cleanup.NewShared(cleanup.Folder(state), w.Name, nil)
	if url != "" {
		cfg.URL, cfg.Insecure, cfg.Keys, cfg.Executor = url, insecure, r.Keys(), w.Name
		m.leftovers = cleanup.NewShared(sharedRecords{r.Records}, w.Name, m.workerEnded)
	}
	if m.engine, err = workflow.Open(ctx, cfg); err != nil {
		return nil, err
	}
	m.migrator = migrate.New(m.engine, m.store, migrate.Options{Version: a.Version, Log: a.Log, Notify: m.passEvent, Shared: cfg.URL != ""})
	warm.Register(m.migrator)
	if err := m.engine.Launch(); err != nil {
		return nil, errors.Join(err, m.engine.Close())
	}
	m.pacer, m.cleaner = newPacer(m, w.Name), newCleaner(m)
	return m, nil
}

// Close closes all sessions and unlocks the state directory. No run may be under way.
func (m *Mover) Close() error {
	m.cleaner.close()
	m.pacer.close()
	errs := []error{m.engine.Close()}
	for _, s := range append(slices.Collect(maps.Values(m.sources)), m.replaced...) {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// rowSource returns the source of the plan for which row was listed. The source is logged in until
// leave is called. A row that was changed in the database without the fleet key is fault.Denied.
func (m *Mover) rowSource(ctx context.Context, row fleetdb.VM) (s *planSource, leave func(), err error) {
	s, err = m.currentSource(ctx, row.Plan, func(p fleetdb.Plan) error { return m.database.VMs.Verify(p, row) })
	if err != nil {
		return nil, nil, err
	}
	leave, err = s.acquire(ctx)
	return s, leave, err
}

// sourceOf returns the source of a plan, which may not be logged in. Only name and creation time of p
// are used: the text is read from the database.
func (m *Mover) sourceOf(ctx context.Context, p fleetdb.Plan) (*planSource, error) {
	return m.currentSource(ctx, p.Name, func(is fleetdb.Plan) error {
		if !is.Created.Equal(p.Created) {
			return fault.New(fault.Denied, "plan %s is refused: its text differs from the plan that was submitted at %s", p.Name, p.Created.Format(time.RFC3339)).
				WithHint("find out who can write to the database; then drop the plan and submit it again")
		}
		return nil
	})
}

// currentSource returns the source of the plan with that name for which fits succeeds: the known one,
// or else a new one from the verified row of the database.
func (m *Mover) currentSource(ctx context.Context, name string, fits func(fleetdb.Plan) error) (*planSource, error) {
	m.mu.Lock()
	s := m.sources[name]
	m.mu.Unlock()
	if s != nil && fits(s.plan) == nil {
		return s, nil
	}
	p, err := m.database.Plans.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if s, err = m.KnownSource(p); err != nil {
		return nil, err
	}
	return s, fits(s.plan)
}

// KnownSource returns the source of a plan as the database has it, which may not be logged in. A plan that
// must not be executed is fault.Denied.
func (m *Mover) KnownSource(p fleetdb.Plan) (*planSource, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.sources[p.Name]
	if old != nil && (old.plan.SameSignature(p) || m.database == nil) {
		return old, nil
	}
	s, err := m.acceptedSource(p)
	if err != nil {
		return nil, err
	}
	if old != nil {
		m.replaced = append(m.replaced, old) // VMs may still be moved from it
	}
	m.sources[p.Name] = s
	if m.database != nil { // else it only reads plans
		source := fleet.Endpoint(s.URL)
		s.Login.Logins = m.limiterFor(source, "")
		s.Login.OnHost = func(host string) *login.Limiter {
			m.mu.Lock()
			defer m.mu.Unlock()
			if s.URL.Scheme != "vcenter" { // an ESXi host counts logins of both kinds together
				host = ""
			}
			return m.limiterFor(source, host)
		}
	}
	return s, nil
}

// limiterFor returns the login limits that all plans of a source share, or of one host of the source.
// mu must be held.
func (m *Mover) limiterFor(source, host string) *login.Limiter {
	at := source + " " + host
	if m.logins[at] == nil {
		m.logins[at] = login.NewLimiter(m.database, source, host)
	}
	return m.logins[at]
}

// Move migrates one VM to all of its destinations, with its hooks. It returns when all runs have ended.
// Transient errors run no post hook, because the node will try again. It implements fleet.Mover.
func (m *Mover) Move(ctx context.Context, row fleetdb.VM, d fleet.Driver) (err error) {
	s, leave, err := m.rowSource(ctx, row)
	if err != nil {
		return err
	}
	defer leave()
	if err := m.allowHooks(s, s.optionsFor(row).Hooks); err != nil {
		return err
	}
	vm, err := s.Session.VMByRef(ctx, inventory.MoRef(row.VM))
	if err != nil {
		return err
	}
	o := s.optionsFor(row)
	if err := d.Storage(m.storageIDs(row.To)); err != nil {
		return err
	}
	w, err := s.openVMParts(ctx, row, vm, o)
	if err != nil {
		return err
	}
	if o.SourceHash { // a missing requirement must appear now, not after hours of copying
		if _, err := w.Shells.Open(ctx, vm.Host); err != nil {
			return fmt.Errorf("sourceHash: %w", err)
		}
	}
	s.warnHost(ctx, w, o, vm)
	if err := m.runPreHook(ctx, s, o.Hooks.Pre, row, vm); err != nil {
		return fmt.Errorf("hook before the VM: %w", err)
	}
	// the hook may have changed the VM, so its description is read again
	seen := vm
	if len(o.Hooks.Pre.Command) > 0 {
		seen = nil
	}
	defer m.traceRuns(w, s.plan, row)()
	err = m.runVM(ctx, w, row, d, preflight.PermitOf(o), seen)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// errors after which the node tries again: the VM has not ended yet
	passes := fault.Is(err, fault.Transient) || fault.Is(err, fault.Unreachable)
	if passes || errors.Is(err, fault.ErrLogin) || errors.Is(err, fault.ErrNoRoom) {
		return err
	}
	return errors.Join(err, m.runPostHook(ctx, s, o.Hooks.Post, row, vm, err))
}

// traceRuns traces the runs in w until the returned function is called.
func (m *Mover) traceRuns(w *assemble.Parts, p fleetdb.Plan, row fleetdb.VM) (end func()) {
	about := trace.Run{Plan: trace.Plan{Name: p.Name, Created: p.Created}, VM: row.Name, Ref: row.VM, Source: row.Source, Worker: row.Worker}
	for _, d := range w.To {
		m.a.Traces.StartRun(d.Plan.ID, about)
	}
	return func() {
		for _, d := range w.To {
			m.a.Traces.EndRun(d.Plan.ID)
		}
	}
}

// tracePlan traces a plan that has ended.
func (m *Mover) tracePlan(p fleetdb.Plan) {
	end := trace.PlanEnd{Plan: trace.Plan{Name: p.Name, Created: p.Created}, Ended: p.Ended, VMs: map[string]int{}}
	if f := p.Failure; f != nil {
		end.Failure = &journal.Failure{Kind: f.Kind, Text: f.Text, Hint: f.Hint}
	}
	for state, n := range p.Counts {
		end.VMs[string(state)] = n
	}
	m.a.Traces.EndPlan(end)
}

// runVM executes the runs of one VM. seen is a recent description of the VM, or nil.
func (m *Mover) runVM(ctx context.Context, w *assemble.Parts, row fleetdb.VM, d fleet.Driver, permit migrate.Permit, seen *inventory.VM) error {
	dr := newRunEvents(row, d)
	m.registerRuns(w, dr)
	defer m.unregisterRuns(w)
	flow, leave := m.pacer.joinFlow(ctx, row)
	defer leave()
	if err := m.restoreOrder(w, row.Command); err != nil {
		return err
	}
	var errs []error
	for _, e := range w.MigrateAll(ctx, permit, migrate.Environment{RequestSlot: dr.acquireSlot, Pace: flow.Wait, Free: flow.Free, Epoch: d.Epoch(), Seen: seen}) {
		err := e.Err
		if err != nil && len(w.To) > 1 {
			err = fmt.Errorf("to %s: %w", e.To.Name, err)
		}
		errs = append(errs, err)
	}
	if o, measured := dr.measuredOutage(permit.Cutover.Budget); measured {
		if err := m.recordOutage(ctx, row.Key, o); err != nil {
			m.a.Log.Warn("outage not recorded", "vm", row.Key, "err", err)
		}
	}
	return errors.Join(errs...)
}

// recordOutage records the outage of a VM before its row shows that it is done.
func (m *Mover) recordOutage(ctx context.Context, vm fleetdb.Key, o fleetdb.Outage) error {
	doc, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return m.database.Records.Put(ctx, fleetdb.OutageOfVM, vm.String(), doc)
}

// restoreOrder passes the current command to warm runs, because the recorded one may be older. It also
// drops a recorded rehearsal of the fleet; the fleet requests it again if it is still wanted.
func (m *Mover) restoreOrder(w *assemble.Parts, o fleetdb.Command) error {
	for _, d := range w.To {
		if !d.Plan.Warm {
			continue
		}
		if _, err := m.store.Create(d.Plan); err != nil && !fault.Is(err, fault.Conflict) {
			return err // Migrate explains a conflict better
		}
		if err := m.store.SendCommand(d.Plan.ID, orderOf(o)); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if err := m.forgetRehearsal(d.Plan.ID); err != nil {
			return err
		}
	}
	return nil
}

// registerRuns makes events of the runs in w go to dr.
func (m *Mover) registerRuns(w *assemble.Parts, dr *runEvents) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range w.To {
		m.events[d.Plan.ID] = dr
	}
}

// unregisterRuns reverts registerRuns.
func (m *Mover) unregisterRuns(w *assemble.Parts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range w.To {
		delete(m.events, d.Plan.ID)
	}
}

// passEvent passes an event of a run to its runEvents. Events of other runs are dropped.
func (m *Mover) passEvent(e journal.Event) {
	m.a.Traces.HandleEvent(e)
	m.mu.Lock()
	dr := m.events[e.Run]
	m.mu.Unlock()
	if dr == nil {
		return
	}
	dr.handleEvent(e)
	if e.Kind == journal.RehearsalDone {
		m.reportRehearsal(dr, e.Run)
	}
}

// SendCommand passes a command to the runs of a VM. Cold runs accept none. It implements fleet.Mover.
func (m *Mover) SendCommand(row fleetdb.VM, o fleetdb.Command) error {
	var errs []error
	for _, run := range row.Runs {
		if row.Warm {
			errs = append(errs, m.store.SendCommand(journal.ID(run), orderOf(o)))
		}
	}
	return errors.Join(errs...)
}

// orderOf converts a command of the fleet to a command of a warm run. Commands that end a run are
// handled by the node, which stops and undoes it; here they continue the run.
func orderOf(o fleetdb.Command) journal.Command {
	switch o {
	case fleetdb.Pause:
		return journal.Pause
	case fleetdb.CutOver:
		return journal.CutOver
	}
	return journal.GoOn
}

// Undo undoes all runs of a VM. It removes a published VM only if its withdrawal was requested. It
// implements fleet.Mover.
func (m *Mover) Undo(ctx context.Context, row fleetdb.VM) error {
	s, leave, err := m.rowSource(ctx, row)
	if err != nil {
		return err
	}
	defer leave()
	w, err := s.openParts(ctx, row, s.optionsFor(row))
	if err != nil {
		return err
	}
	var errs []error
	for i, d := range w.To {
		errs = append(errs, m.undoRun(ctx, row, journal.ID(row.Runs[i]), d.Target, w.RigOf(d)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return fleet.VMHooks{Records: m.database.Records, VM: row.Key}.Reset(ctx)
}

// undoRun undoes one run of a VM. A run without a record never began, or an earlier attempt undid it.
// If its VM is published nevertheless, undoRun returns fault.Conflict.
func (m *Mover) undoRun(ctx context.Context, row fleetdb.VM, id journal.ID, to assemble.LocalTarget, rig migrate.Environment) error {
	undo := m.migrator.Discard
	if row.Command == fleetdb.Withdraw {
		undo = m.migrator.Rollback
	}
	err := undo(ctx, id, rig)
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	folder := to.Folder(&inventory.VM{Name: row.Name})
	if r, notThere := dir.ReadRecord(folder); notThere == nil && string(r.Source.Ref) == row.VM {
		return fault.New(fault.Conflict, "VM %s is published in %s, but its run %s has no record in the state directory", row.Name, folder, id).
			WithHint("remove the VM manually at its target, then the folder, and power it on at the source; then repeat the command")
	}
	return nil
}

// storageIDs returns the IDs of the storages of destinations, each once. Destinations that this worker
// does not offer have none.
func (m *Mover) storageIDs(to []string) []string {
	var ids []string
	for _, each := range to {
		if id := admission.StorageOf(m.offers, each); id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// List reports the VMs of a plan. Rows of named VMs that the source does not have come last, as failed.
// It implements fleet.Mover.
func (m *Mover) List(ctx context.Context, p fleetdb.Plan, tell func([]fleetdb.VM) error) error {
	s, err := m.sourceOf(ctx, p)
	if err != nil {
		return err
	}
	leave, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.List(ctx, tell)
}
