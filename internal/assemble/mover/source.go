package mover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	hostcheck "github.com/decamp/decamp/internal/doctor/host"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
)

// A planSource is the source of a plan, with the session and the transports that VMs of the plan share.
// It is safe for concurrent use.
type planSource struct {
	*assemble.SourceParts
	m       *Mover                        // the mover
	name    string                        // name of the plan
	plan    fleetdb.Plan                  // plan as it was read; verified, unless the mover only reads plans
	file    *planfile.File                // the parsed plan
	folder  string                        // folder of the plan's relative paths
	entries map[planfile.Pos]*planfile.VM // entries of the plan by their position

	mu             sync.Mutex                     // guards the fields below; held during a login
	opened         bool                           // the session is open
	warned         map[inventory.MoRef]bool       // hosts whose findings were reported
	infrastructure *assemble.Infrastructure       // hosts and datastores; nil until they are read
	users          int                            // number of callers between acquire and release
	idleTimer      *time.Timer                    // closes transports of an unused source; nil before the first release
	cleanups       sync.WaitGroup                 // waits for the cleanup in the background
	cleaning       bool                           // a cleanup is running
	cancelCleanup  context.CancelFunc             // ends the cleanup; nil before the first one
	transports     map[string]transport.Transport // open transports by their options
}

// newPlanSource parses a plan. It does not log in.
func (m *Mover) newPlanSource(p fleetdb.Plan) (*planSource, error) {
	file, found := planfile.Parse([]byte(p.Text))
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("plan %s: %w", p.Name, err)
	}
	s := &planSource{
		m: m, name: p.Name, plan: p, file: file, folder: p.Folder, entries: map[planfile.Pos]*planfile.VM{},
		SourceParts: &assemble.SourceParts{Assembler: m.a, Base: p.Folder, Role: m.roleOf(p), Parts: &assemble.Parts{Store: m.store, Migrator: m.migrator, Leftovers: m.leftovers}},
		transports:  map[string]transport.Transport{}, warned: map[inventory.MoRef]bool{},
	}
	for i := range file.VMs {
		s.entries[file.VMs[i].Pos] = &file.VMs[i]
	}
	var err error
	s.URL, err = esx.ParseURL(string(file.Source.URL))
	return s, err
}

// acquire logs in if necessary, and keeps session and transports open until leave is called. After a
// failed login the next call tries again.
func (s *planSource) acquire(ctx context.Context) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openSession(ctx); err != nil {
		return nil, err
	}
	s.users++
	return s.release, nil
}

// idleTimeout is the time after which the transports of an unused source are closed.
const idleTimeout = 15 * time.Second

// release ends one acquire, and starts the idle timer after the last one.
func (s *planSource) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	if s.idleTimer == nil {
		s.idleTimer = time.AfterFunc(idleTimeout, s.closeIdle)
	} else {
		s.idleTimer.Reset(idleTimeout)
	}
}

// closeIdle closes the transports of an unused source. A server runs for months after the end of a
// plan, and would keep datastores mounted and sessions open on hosts. The login stays, because an
// entered password cannot be entered again.
func (s *planSource) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 || !s.opened { // acquired again since the timer fired, or closed
		return
	}
	err := s.endTransports()
	s.Assembler.WarnStays(err)
	s.startCleanup() // reverts changes that a host refused to revert
}

// endTransports closes all transports except the one that reads files. mu must be held.
func (s *planSource) endTransports() error {
	var errs []error
	for _, t := range s.transports {
		if t != transport.Transport(s.Reader) {
			errs = append(errs, t.Close())
		}
	}
	clear(s.transports)
	return errors.Join(errs...)
}

// openSession logs in unless it has done so. mu must be held.
func (s *planSource) openSession(ctx context.Context) error {
	if s.opened {
		return nil
	}
	if err := s.checkPermitted(); err != nil {
		return err
	}
	if err := s.logIn(ctx); err != nil {
		return s.Login.Logins.Refuse(ctx, err)
	}
	s.Reader = https.New(s.Session, https.Options{MaxConnections: s.file.Defaults.Connections, Log: s.Assembler.Log})
	s.Rereader = https.New(s.Session, https.Options{MaxConnections: migrate.RereadConnections, Log: s.Assembler.Log})
	s.startCleanup()
	s.opened = true
	return nil
}

// Pauses before another attempt to revert changes that a host refused to revert, for example
// because the copy of a killed process still uses them. The pause doubles each time.
const (
	minCleanupPause = 5 * time.Second  // first pause
	maxCleanupPause = 10 * time.Minute // limit of the pause
)

// startCleanup reverts changes of earlier runs in the background, because a busy host would otherwise
// delay all VMs. It tries again after failures. Changes that are in use stay. mu must be held.
func (s *planSource) startCleanup() {
	if s.cleaning {
		return // the running cleanup handles the new changes as well
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancelCleanup, s.cleaning = cancel, true
	s.cleanups.Go(func() {
		defer s.endCleanup()
		for pause := minCleanupPause; s.Assembler.RevertLeftovers(ctx, s.Shells); pause = min(2*pause, maxCleanupPause) {
			if sleep.For(ctx, pause) != nil {
				return
			}
		}
	})
}

// endCleanup marks the cleanup as ended.
func (s *planSource) endCleanup() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelCleanup()
	s.cleaning = false
}

// checkPermitted checks a submitted plan as the server did, but with the access file of this machine.
func (s *planSource) checkPermitted() error {
	if s.Role == planfile.Local {
		return nil
	}
	access, err := s.Assembler.Access()
	if err != nil {
		return err
	}
	return access.Permit(s.file, s.Role)
}

// checkOffered returns fault.Denied if a VM of a plan with role operate goes to a folder that this
// worker does not offer.
func (s *planSource) checkOffered(row fleetdb.VM) error {
	if s.Role != planfile.Operate {
		return nil
	}
	for _, to := range row.To {
		if admission.StorageOf(s.m.offers, to) == "" {
			return fault.New(fault.Denied, "VM %s of plan %s goes to %s, and this worker does not offer that folder", row.Name, row.Plan, to).
				WithHint("offer the folder with --offer, or name another one in the plan")
		}
	}
	return nil
}

// logIn logs in with the credentials of the plan.
func (s *planSource) logIn(ctx context.Context) error {
	if err := s.Assembler.PlanLogin(&s.Login, s.file, s.folder, s.Role); err != nil {
		return err
	}
	var err error
	if s.SSH, err = s.Assembler.PlanSSH(s.file, s.folder, s.Role); err != nil {
		return err
	}
	return s.Assembler.OpenSource(ctx, s.SourceParts)
}

// LogIn logs in without migrations, to read the inventory. Values of l take precedence over the plan.
func (s *planSource) LogIn(ctx context.Context, l assemble.Login) error {
	s.Login = l
	return s.logIn(ctx)
}

// Close ends the cleanup, closes the transports and logs out.
func (s *planSource) Close() error {
	s.stopBackground()
	s.cleanups.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.endTransports(), s.SourceParts.Close())
}

// stopBackground stops the timer and the cleanup, and prevents new ones.
func (s *planSource) stopBackground() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idleTimer != nil {
		s.idleTimer.Stop()
	}
	s.opened = false
	if s.cancelCleanup != nil {
		s.cancelCleanup()
	}
}

// optionsFor returns the options of a VM: those of its entry, or the defaults.
func (s *planSource) optionsFor(row fleetdb.VM) planfile.Options {
	if entry := s.entries[planfile.Pos{Line: row.Line, Column: row.Column}]; entry != nil {
		return entry.Options
	}
	return s.file.Defaults
}

// openParts returns the parts of one VM: the shared session and transports, and its own targets.
func (s *planSource) openParts(ctx context.Context, row fleetdb.VM, o planfile.Options) (*assemble.Parts, error) {
	if err := s.checkOffered(row); err != nil {
		return nil, err
	}
	m := s.MoveOf(o)
	m.To, m.Maps = assemble.Destinations(row.To), s.file.Maps.Value()
	shared := s.SourceParts.Parts
	w := &assemble.Parts{
		URL: shared.URL, Session: shared.Session, Reader: shared.Reader, Rereader: shared.Rereader, Shells: shared.Shells,
		Store: shared.Store, Migrator: shared.Migrator, Leftovers: shared.Leftovers,
		Expect: string(o.Expect), Conversion: assemble.EngineOf(m), Trials: s.m.Trials,
	}
	if err := s.Assembler.OpenTargets(w, m, s.Role); err != nil {
		return nil, err
	}
	var err error
	w.Transport, err = s.transportFor(ctx, w, o)
	return w, err
}

// openVMParts returns the parts of a VM that exists, with the intents of its runs. It fails if a
// requirement of its conversion is missing.
func (s *planSource) openVMParts(ctx context.Context, row fleetdb.VM, vm *inventory.VM, o planfile.Options) (*assemble.Parts, error) {
	m := s.MoveOf(o)
	m.Maps = s.file.Maps.Value()
	if m.ChangesGuest() {
		if err := assemble.EngineOf(m).CheckFiles("keyFiles", "applianceKernel"); err != nil {
			return nil, err
		}
	}
	w, err := s.openParts(ctx, row, o)
	if err != nil {
		return nil, err
	}
	if err := w.CheckEngine(ctx, m, vm); err != nil {
		return nil, err
	}
	w.Plan(vm, m)
	return w, nil
}

// transportFor returns the transport with options o. VMs with the same options share one, with its
// connections and its memory on hosts.
func (s *planSource) transportFor(ctx context.Context, w *assemble.Parts, o planfile.Options) (transport.Transport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprint(o.Transport, o.Connections, o.NFC, o.Landing, o.Mode == planfile.WarmMode && o.Transport == "landing")
	if t := s.transports[key]; t != nil {
		return t, nil
	}
	t, err := s.Assembler.NewTransport(ctx, w, o)
	if err == nil {
		s.transports[key] = t
	}
	return t, err
}

// warnHost reports findings on a host, before the first VM of the plan is migrated from it. VMs are not
// examined, because there may be thousands: decamp plan check does that.
func (s *planSource) warnHost(ctx context.Context, w *assemble.Parts, o planfile.Options, vm *inventory.VM) {
	if !s.isFirst(vm.Host) {
		return
	}
	g, err := s.readInfrastructure(ctx)
	if err != nil {
		s.Assembler.Log.Info("checks before the migration failed", "host", vm.HostName, "err", err)
		return
	}
	d := assemble.DiagnoseOne(w, s.MoveOf(o), vm, g)
	s.Assembler.WarnBefore(ctx, d, hostcheck.Checks(d.HostOptions()))
}

// isFirst reports whether it is called for a host for the first time.
func (s *planSource) isFirst(host inventory.MoRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.warned[host]
	s.warned[host] = true
	return first
}

// readInfrastructure returns hosts and datastores of the source. They are read once, not for each host.
func (s *planSource) readInfrastructure(ctx context.Context) (assemble.Infrastructure, error) {
	s.mu.Lock()
	g := s.infrastructure
	s.mu.Unlock()
	if g != nil {
		return *g, nil
	}
	read, err := assemble.ReadInfrastructure(ctx, s.Session)
	if err != nil {
		return read, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.infrastructure = &read
	return read, nil
}
