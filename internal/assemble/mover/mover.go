package mover

import (
	"context"
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
	"github.com/decamp/decamp/internal/workflow"
)

// Mover does for a fleet's node what decamp migrate does for one VM. VMs of one source share
// a session, the connections to its hosts, and their limits.
type Mover struct {
	a         *assemble.Assembler
	roster    *fleetdb.Roster
	engine    *workflow.Engine
	store     *journal.Store
	migrator  *migrate.Migrator
	leftovers *cleanup.Store
	offers    map[string]string // storages behind this worker's folders
	pacer     *pacer
	cleaner   *cleaner
	Command   bool          // a command of the user, with the user's files and terminal; not a server or a worker
	Trials    chan struct{} // has room for as many as may boot at a time

	Hooks bool // hooks of plans are run

	mu       sync.Mutex
	sources  map[string]*planSource    // sources by plan
	replaced []*planSource             // sources of plans that were submitted again under the same name
	logins   map[string]*login.Limiter // login limits by source, and by host
	events   map[journal.ID]*runEvents // runs under way here
}

var _ fleet.Mover = (*Mover)(nil)

// New returns a mover that can only read plans.
func New(a *assemble.Assembler) *Mover {
	return &Mover{a: a, sources: map[string]*planSource{}, logins: map[string]*login.Limiter{}, events: map[journal.ID]*runEvents{}}
}

// Open opens the state directory for a worker. The engine is launched; runs that were
// under way wait for Move. An empty url is no database that machines share. Its record is in the state directory, or where machines meet.
func Open(ctx context.Context, a *assemble.Assembler, url string, insecure bool, w fleetdb.Worker, r *fleetdb.Roster) (*Mover, error) {
	state, err := a.StateDir()
	if err != nil {
		return nil, err
	}
	m := New(a)
	m.roster, m.offers = r, w.Offers
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

// Close ends the sessions and gives the state directory up. Nothing is under way any more.
func (m *Mover) Close() error {
	m.cleaner.close()
	m.pacer.close()
	errs := []error{m.engine.Close()}
	for _, s := range append(slices.Collect(maps.Values(m.sources)), m.replaced...) {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// rowSource returns the source of the plan that row was listed for, logged in to, until leave is
// called. A row that was changed in the database is fault.Denied.
func (m *Mover) rowSource(ctx context.Context, row fleetdb.VM) (s *planSource, leave func(), err error) {
	s, err = m.currentSource(ctx, row.Plan, func(p fleetdb.Plan) error { return m.roster.VMs.Verify(p, row) })
	if err != nil {
		return nil, nil, err
	}
	leave, err = s.acquire(ctx)
	return s, leave, err
}

// sourceOf returns the source of a plan, which need not be logged in to. Only the name and the time
// of p count: its text is that of the database.
func (m *Mover) sourceOf(ctx context.Context, p fleetdb.Plan) (*planSource, error) {
	return m.currentSource(ctx, p.Name, func(is fleetdb.Plan) error {
		if !is.Created.Equal(p.Created) {
			return fault.New(fault.Denied, "plan %s is refused: it is not the one that was submitted at %s", p.Name, p.Created.Format(time.RFC3339)).
				WithHint("see who can write to the database; then drop the plan and submit it again")
		}
		return nil
	})
}

// currentSource returns the source of the plan of that name that fits: the one that is known, or else one
// of what the database has now, which is verified.
func (m *Mover) currentSource(ctx context.Context, name string, fits func(fleetdb.Plan) error) (*planSource, error) {
	m.mu.Lock()
	s := m.sources[name]
	m.mu.Unlock()
	if s != nil && fits(s.plan) == nil {
		return s, nil
	}
	p, err := m.roster.Plans.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if s, err = m.Known(p); err != nil {
		return nil, err
	}
	return s, fits(s.plan)
}

// Known returns the source of a plan as the database has it, which need not be logged in to. A plan
// that may not be carried out is fault.Denied.
func (m *Mover) Known(p fleetdb.Plan) (*planSource, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.sources[p.Name]
	if old != nil && (old.plan.SameSignature(p) || m.roster == nil) {
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
	if m.roster != nil { // else it only reads plans
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

// limiterFor are those of all plans of a source, or of a host of it. The caller has m.mu.
func (m *Mover) limiterFor(source, host string) *login.Limiter {
	at := source + " " + host
	if m.logins[at] == nil {
		m.logins[at] = login.NewLimiter(m.roster, source, host)
	}
	return m.logins[at]
}

// Move is part of fleet.Mover.
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
	seen := vm
	if len(o.Hooks.Pre.Command) > 0 { // the hook may have changed the VM, and may have taken long
		seen = nil
	}
	err = m.runVM(ctx, w, row, d, preflight.PermitOf(o), seen)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	passes := fault.Is(err, fault.Transient) || fault.Is(err, fault.Unreachable)
	if passes || errors.Is(err, fault.ErrLogin) || errors.Is(err, fault.ErrNoRoom) {
		return err // there will be another attempt: this is not the end
	}
	return errors.Join(err, m.runPostHook(ctx, s, o.Hooks.Post, row, vm, err))
}

// runVM carries out the runs of one VM. Seen is the VM as it was read a moment ago, or nil.
func (m *Mover) runVM(ctx context.Context, w *assemble.Parts, row fleetdb.VM, d fleet.Driver, permit migrate.Permit, seen *inventory.VM) error {
	dr := newRunEvents(row, d)
	m.registerRuns(w, dr)
	defer m.unregisterRuns(w)
	flow, leave := m.pacer.joinFlow(ctx, row)
	defer leave()
	if err := m.restoreOrder(w, row.Order); err != nil {
		return err
	}
	var errs []error
	for _, e := range w.MigrateAll(ctx, permit, migrate.Rig{Turn: dr.acquireSlot, Pace: flow.Wait, Free: flow.Free, Epoch: d.Epoch(), Seen: seen}) {
		err := e.Err
		if err != nil && len(w.To) > 1 {
			err = fmt.Errorf("to %s: %w", e.To.Name, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// restoreOrder passes the current command to warm runs: the recorded one may be older. A recorded rehearsal
// is requested again if it is still wanted.
func (m *Mover) restoreOrder(w *assemble.Parts, o fleetdb.Order) error {
	for _, d := range w.To {
		if !d.Plan.Warm {
			continue
		}
		if _, err := m.store.Create(d.Plan); err != nil && !fault.Is(err, fault.Conflict) {
			return err // Migrate explains a conflict better
		}
		if err := m.store.Give(d.Plan.ID, orderOf(o)); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if err := m.forgetRehearsal(d.Plan.ID); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mover) registerRuns(w *assemble.Parts, dr *runEvents) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range w.To {
		m.events[d.Plan.ID] = dr
	}
}

func (m *Mover) unregisterRuns(w *assemble.Parts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range w.To {
		delete(m.events, d.Plan.ID)
	}
}

// passEvent passes on an event of a run.
func (m *Mover) passEvent(e journal.Event) {
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

// Order is part of fleet.Mover. Cold runs take none while they are under way.
func (m *Mover) Order(row fleetdb.VM, o fleetdb.Order) error {
	var errs []error
	for _, run := range row.Runs {
		if row.Warm {
			errs = append(errs, m.store.Give(journal.ID(run), orderOf(o)))
		}
	}
	return errors.Join(errs...)
}

// orderOf is an order of the fleet in the words of a warm run. Those that end it are the
// node's: it stops the run, and undoes it.
func orderOf(o fleetdb.Order) journal.Order {
	switch o {
	case fleetdb.Pause:
		return journal.Pause
	case fleetdb.CutOver:
		return journal.CutOver
	}
	return journal.GoOn
}

// Undo implements fleet.Mover. It removes a published VM only if its withdrawal was requested.
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
	return fleet.VMHooks{Records: m.roster.Records, VM: row.Key}.Forget(ctx)
}

// undoRun undoes one run of a VM. A run without a record never began, or an earlier attempt undid it. If
// its VM is published all the same, undoRun returns fault.Conflict.
func (m *Mover) undoRun(ctx context.Context, row fleetdb.VM, id journal.ID, to assemble.Resident, rig migrate.Rig) error {
	undo := m.migrator.Discard
	if row.Order == fleetdb.Withdraw {
		undo = m.migrator.Rollback
	}
	err := undo(ctx, id, rig)
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	folder := to.Folder(&inventory.VM{Name: row.Name})
	if r, notThere := dir.ReadRecord(folder); notThere == nil && string(r.Source.Ref) == row.VM {
		return fault.New(fault.Conflict, "VM %s is published in %s, and its run %s is not on record", row.Name, folder, id).
			WithHint("remove the VM by hand where it lives, then the folder, and power it on at the source; then give the order again")
	}
	return nil
}

// storageIDs are the ids of the storages behind destinations.
func (m *Mover) storageIDs(to []string) []string {
	var ids []string
	for _, each := range to {
		if id := admission.StorageOf(m.offers, each); id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// List implements fleet.Mover. VMs that the plan names and the source does not have come last, as
// failed.
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
