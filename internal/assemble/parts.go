package assemble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/migrate/warm"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/trace"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
	"github.com/decamp/decamp/internal/transport/landing"
	"github.com/decamp/decamp/internal/units"
	"github.com/decamp/decamp/internal/workflow"
)

// Dial logs in to the ESXi host or vCenter at rawURL, after its certificate was accepted. It refuses a
// login that could lock the account.
func (a *Assembler) Dial(ctx context.Context, rawURL string, l Login) (*esx.Session, error) {
	u, err := esx.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	// before any connection: a submitted plan must not use defaults of this machine
	if l.submitted && l.PasswordFile == "" {
		return nil, NoCredentials(rawURL)
	}
	// the certificate is verified before the password is sent
	shown, err := esx.Fingerprint(ctx, u.Host)
	if err != nil {
		return nil, err
	}
	if err := a.verifyCertificate(ctx, fleet.Endpoint(u), certificate(shown), l); err != nil {
		return nil, err
	}
	state, err := a.StateDir()
	if err != nil {
		return nil, err
	}
	refused := &refusals{filepath.Join(state, "refused_logins.json"), sourceAccount(u), time.Now}
	password := a.sourcePassword(u, l.PasswordFile)
	return esx.Dial(ctx, esx.Config{
		URL:         u,
		Fingerprint: shown.Fingerprint,
		Log:         a.Log,
		Admit:       newAdmission(a.Log, l.Logins, refused),
		Judged: func(refusal error) {
			if err := refused.addResult(refusal); err != nil {
				a.Log.Warn("login not noted", "err", err)
			}
		},
		Password: func(ctx context.Context) (esx.Secret, error) {
			if err := refused.checkLimit(); err != nil {
				return "", err
			}
			text, err := password(ctx)
			a.storePassword(refused.account, text)
			return esx.Secret(text), err
		},
	})
}

// NoCredentials is the error for a submitted plan without credentials for a login: defaults of this
// machine are not used for it.
func NoCredentials(rawURL string) error {
	return fault.New(fault.Denied, "a submitted plan has no credentials for %s", rawURL).
		WithHint("add source: {credentials: {name: NAME}} to the plan; an administrator adds NAME to the access file")
}

// newAdmission returns the function of esx.Config.Admit that applies the login limits of a fleet. After
// a refusal logins wait for a decision of the user, which also removes earlier refusals. It returns nil
// if l is nil.
func newAdmission(log *slog.Logger, l *login.Limiter, refused *refusals) func(context.Context) (func(error), error) {
	if l == nil {
		return nil
	}
	return func(ctx context.Context) (func(error), error) {
		pass, again, err := l.Admit(ctx)
		if err == nil && again {
			if err := refused.addResult(nil); err != nil {
				log.Warn("refused logins not forgotten", "err", err)
			}
		}
		return pass, err
	}
}

// Parts are the opened parts of a migration. Close closes them. A part is nil until it is opened.
type Parts struct {
	URL          *url.URL            // URL of the source
	Session      *esx.Session        // session with the source
	Reader       *https.Transport    // reads disks for inspection
	Rereader     *https.Transport    // reads disks a second time, over separate connections
	Transport    transport.Transport // copies the disks
	To           []*Destination      // destinations
	Store        *journal.Store      // journals of the state directory
	engine       *workflow.Engine    // workflow engine; it locks the state directory
	Migrator     *migrate.Migrator   // executes runs
	Leftovers    *cleanup.Store      // records of changes on hosts
	Shells       *HostShells         // logins to hosts by SSH
	sums         hostSums            // hashes that hosts have computed
	Expect       string              // text that a trial boot expects
	Conversion   EngineOptions       // tool that changes guests
	Trials       chan struct{}       // its capacity is the number of parallel trial boots; nil: unlimited
	retryCleanup func()              // reverts changes of earlier runs once more; nil if nothing is left
	traces       *trace.Tracer       // traces the runs; nil if traces are off
	Shown        func(journal.Event) // receives the events; nil until a display exists
}

// Open opens the parts of decamp migrate. It opens first what can fail quickly: the folders, then the
// state directory, and last the source, which may prompt for a password. On an error it closes what it
// opened.
func (a *Assembler) Open(ctx context.Context, m Move, rawURL string) (w *Parts, err error) {
	w = &Parts{Expect: string(m.Expect), Conversion: EngineOf(m)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.URL, err = esx.ParseURL(rawURL); err != nil {
		return w, err
	}
	if err := a.OpenTargets(w, m, planfile.Local); err != nil {
		return w, err
	}
	if err := a.OpenState(ctx, w); err != nil {
		return w, err
	}
	if w.Session, err = a.Dial(ctx, rawURL, m.Login); err != nil {
		return w, err
	}
	w.Shells = a.NewHostShells(w.Session, w.URL, m.Login, m.SSH, w.Leftovers)
	if a.RevertLeftovers(ctx, w.Shells) {
		w.retryCleanup = func() { a.RevertLeftovers(context.WithoutCancel(ctx), w.Shells) }
	}
	return w, a.openTransport(ctx, w, m.Options)
}

// openTransport opens the transports: one that reads disks for inspection, one for a second reading,
// and the one that copies.
func (a *Assembler) openTransport(ctx context.Context, w *Parts, o planfile.Options) (err error) {
	w.Reader = https.New(w.Session, https.Options{MaxConnections: o.Connections, Log: a.Log})
	w.Rereader = https.New(w.Session, https.Options{MaxConnections: migrate.RereadConnections, Log: a.Log})
	w.Transport, err = a.NewTransport(ctx, w, o)
	return err
}

// NewTransport returns the transport that copies the disks. It may be w.Reader, if that has the
// requested number of connections. The caller closes the result, except w.Reader.
func (a *Assembler) NewTransport(ctx context.Context, w *Parts, o planfile.Options) (transport.Transport, error) {
	switch o.Transport {
	case "https":
		if o.Connections == w.Reader.MaxConnections() {
			return w.Reader, nil
		}
		return https.New(w.Session, https.Options{MaxConnections: o.Connections, Log: a.Log}), nil
	case "nfc":
		return a.NewNFC(w, o.NFC, 0), nil
	}
	state, err := a.StateDir()
	if err != nil {
		return nil, err
	}
	allow, err := LookUp(ctx, "--landing-allow", o.Landing.Allow)
	if err != nil {
		return nil, err
	}
	host := landing.WithShell{Host: w.Session, Open: w.Shells.Open}
	copier := newCopier(w, string(o.Landing.Copy), a.reportCopier)
	if choice, ok := copier.(*landing.Choice); ok {
		host.Refused = choice.Refused
	}
	whole := landing.New(host, landing.Options{
		Dir: filepath.Join(state, "landing"), Advertise: o.Landing.Advertise.Addr, Memory: int64(o.Landing.Memory),
		Ports: nfs.Ports{NFS: string(o.Landing.Listen), Portmap: string(o.Landing.Portmap)}, Allow: allow, Log: a.Log,
		Leftovers: w.Leftovers, Server: ServerOf(w.URL), Stays: a.WarnStays, Copier: copier,
	})
	if o.Mode == planfile.WarmMode { // a host pushes whole disks only
		return transport.Deltas{Transport: whole, Changes: a.NewNFC(w, o.NFC, 0)}, nil
	}
	return whole, nil
}

// newCopier returns the method by which hosts copy disks: api, ssh, or a choice between them. chosen is
// called when the choice is SSH.
func newCopier(w *Parts, how string, chosen func(host inventory.MoRef, why error)) landing.Copier {
	api := landing.API{Host: w.Session}
	ssh := &landing.SSH{Open: w.Shells.Open, Leftovers: w.Leftovers, Server: ServerOf(w.URL)}
	switch how {
	case "api":
		return api
	case "ssh":
		return ssh
	}
	return &landing.Choice{API: api, SSH: ssh, Chosen: chosen}
}

// OpenState opens the journals in the state directory, and launches the workflow engine. It returns
// fault.Conflict if another process has the directory.
func (a *Assembler) OpenState(ctx context.Context, w *Parts) error {
	state, err := a.StateDir()
	if err != nil {
		return err
	}
	if w.engine, err = workflow.Open(ctx, workflow.Config{Dir: state, Log: a.Log}); err != nil {
		return err
	}
	w.Store, w.Leftovers = journal.NewStore(state), cleanup.NewStore(state)
	w.Migrator = migrate.New(w.engine, w.Store, migrate.Options{Version: a.Version, Log: a.Log, Notify: w.passEvent})
	w.traces = a.Traces
	warm.Register(w.Migrator)
	return w.engine.Launch()
}

// passEvent passes an event of a run to the traces, and to Shown, if that is set.
func (w *Parts) passEvent(e journal.Event) {
	w.traces.HandleEvent(e)
	if w.Shown != nil {
		w.Shown(e)
	}
}

// Close closes the open parts in reverse order, and tries again to revert changes of earlier runs that
// could not be reverted before.
func (w *Parts) Close() error {
	var errs []error
	// the engine ends the runs, which use the parts below
	if w.engine != nil {
		errs = append(errs, w.engine.Close())
	}
	// NewTransport may have returned the reader, which is closed below
	if w.Transport != nil && w.Transport != transport.Transport(w.Reader) {
		errs = append(errs, w.Transport.Close())
	}
	for _, t := range []*https.Transport{w.Reader, w.Rereader} {
		if t != nil {
			errs = append(errs, t.Close())
		}
	}
	if w.Shells != nil {
		errs = append(errs, w.Shells.Close())
	}
	if w.retryCleanup != nil {
		w.retryCleanup()
		errs = append(errs, w.Shells.Close())
	}
	if w.Session != nil {
		errs = append(errs, w.Session.Close())
	}
	return errors.Join(errs...)
}

// RevertChanges reverts the recorded changes on the server of a session, within cleanupTimeout. It returns
// the reverted records, and an error for the others, which stay recorded.
func RevertChanges(ctx context.Context, shells *HostShells) ([]cleanup.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	session := shells.session
	host := landing.WithShell{Host: session, Open: shells.Open}
	return shells.store.Restore(ctx, strings.ToLower(session.Addr()), map[cleanup.Kind]cleanup.Undo{
		cleanup.NFSDatastore: func(ctx context.Context, r cleanup.Record) error {
			return host.UnmountNAS(ctx, r.Host, landing.Recorded(r))
		},
		cleanup.ShellJob: func(ctx context.Context, r cleanup.Record) error {
			s, err := shells.Open(ctx, r.Host)
			if err != nil {
				return err
			}
			return s.Jobs.End(ctx, landing.RecordedJob(r))
		},
		cleanup.Snapshot: func(ctx context.Context, r cleanup.Record) error {
			return shells.changer.removeSnapshot(ctx, inventory.MoRef(r.Details["vm"]), r.Details["name"])
		},
		cleanup.SSHService: func(ctx context.Context, r cleanup.Record) error {
			return shells.stopSSH(ctx, r.Host)
		},
	})
}

// cleanupTimeout limits the time that a command spends on changes of earlier runs.
const cleanupTimeout = 2 * time.Minute

// openDisk opens a disk over https. The caller closes it.
func (w *Parts) openDisk(ctx context.Context, d transport.Disk) (disk.Source, error) {
	return OpenDisk(ctx, w.Reader, d)
}

// InspectGuest inspects the guest on the disks of a VM that is off: see guest.DetectEach.
func (w *Parts) InspectGuest(ctx context.Context, vm *inventory.VM) ([]guest.Report, error) {
	return guest.DetectEach(ctx, len(vm.Disks), func(i int) (disk.Source, error) {
		src, err := w.openDisk(ctx, transport.Disk{VM: vm, Disk: &vm.Disks[i]})
		if err != nil {
			return nil, fmt.Errorf("disk %d: %w", vm.Disks[i].Key, err)
		}
		return src, nil
	})
}

// OpenDisk opens a disk. It returns a nil interface on errors, not an interface with a nil
// *https.Source.
func OpenDisk(ctx context.Context, t *https.Transport, d transport.Disk) (disk.Source, error) {
	src, err := t.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	return src, nil
}

// readNVRAM returns the file with the firmware variables of a VM that is off.
func (w *Parts) readNVRAM(ctx context.Context, vm *inventory.VM) ([]byte, error) {
	return w.Session.ReadFile(ctx, vm.Datacenter, vm.NVRAM, efi.MaxVMware)
}

// SourceParts are the parts for checks of a plan: a session without a workflow engine.
type SourceParts struct {
	*Parts
	Assembler *Assembler    // state of this machine, and prompts
	Login     Login         // login to the source
	SSH       SSHOptions    // login to hosts by SSH
	Base      string        // folder that the plan's relative paths are from
	Role      planfile.Role // role with which the plan is executed
}

// OpenSource logs in to the source at p.URL, and prepares the logins by SSH. Leftovers that are set
// already, as those that a fleet shares, are kept.
func (a *Assembler) OpenSource(ctx context.Context, p *SourceParts) (err error) {
	state, err := a.StateDir()
	if err != nil {
		return err
	}
	if p.Leftovers == nil { // not those that a fleet shares
		p.Leftovers = cleanup.NewStore(state)
	}
	if p.Session, err = a.Dial(ctx, p.URL.String(), p.Login); err != nil {
		return err
	}
	p.Shells = a.NewHostShells(p.Session, p.URL, p.Login, p.SSH, p.Leftovers)
	return nil
}

// OpenURL parses rawURL and calls OpenSource.
func (a *Assembler) OpenURL(ctx context.Context, p *SourceParts, rawURL string) (err error) {
	if p.URL, err = esx.ParseURL(rawURL); err != nil {
		return err
	}
	return a.OpenSource(ctx, p)
}

// newFinder returns a Finder for VMs by the words that users write.
func newFinder(vms []inventory.VM) planfile.Finder { return esx.NewIndex(vms) }

// CheckDependencies returns the functions with which package preflight checks a plan. They use the open session.
func (p *SourceParts) CheckDependencies(f *planfile.File) preflight.Dependencies {
	return preflight.Dependencies{
		Source: p.Session,
		Names:  newFinder,
		OpenTarget: func(ctx context.Context, to planfile.Destination, o planfile.Options) (preflight.Target, error) {
			m := p.MoveOf(o)
			m.Maps = f.Maps.Value()
			at, err := p.Assembler.expandPlace(to, p.Role)
			if err != nil {
				return nil, err
			}
			place, err := openTarget(at, m, to.MayStartPlugin(p.Role))
			if err != nil {
				return nil, err
			}
			return place, checkLogin(ctx, place)
		},
		Transport: p.Mover,
		Reach:     reachHost,
		Examine:   p.examinePlan,
		Now:       time.Now,
	}
}

// Mover returns the transport for o, which the caller closes. A landing that does not fit in the memory
// of this machine is fault.Invalid.
func (p *SourceParts) Mover(ctx context.Context, o planfile.Options) (transport.Transport, error) {
	if o.Transport == "https" {
		return https.New(p.Session, https.Options{MaxConnections: o.Connections, Log: p.Assembler.Log}), nil
	}
	if free, known := availableMemory(); o.Transport == "landing" && known && int64(o.Landing.Memory) > free {
		return nil, fault.New(fault.Invalid, "the plan requires %s of memory for a landing, and %s are available", units.Binary(int64(o.Landing.Memory)), units.Binary(free)).
			WithHint("reduce it: landing: {memory: %dM} leaves memory for the rest of the system", free/4*3>>20)
	}
	return p.Assembler.NewTransport(ctx, p.Parts, o)
}

// reachHost connects to an ESXi host of a vCenter, and reads its certificate.
func reachHost(ctx context.Context, h inventory.Host) error {
	_, err := esx.Fingerprint(ctx, cmp.Or(h.Address, h.Name))
	return err
}

// OpenPlan logs in to the source of a plan of the local user. Values of l take precedence over the
// plan. The caller closes the result, also if err is not nil.
func (a *Assembler) OpenPlan(ctx context.Context, l Login, f *planfile.File, folder string) (*SourceParts, error) {
	p := &SourceParts{Assembler: a, Parts: &Parts{}, Login: l, Base: folder, Role: planfile.Local}
	var err error
	if err = a.PlanLogin(&p.Login, f, folder, planfile.Local); err != nil {
		return p, err
	}
	if p.SSH, err = a.PlanSSH(f, folder, planfile.Local); err != nil {
		return p, err
	}
	return p, a.OpenURL(ctx, p, string(f.Source.URL))
}

// MoveOf returns the migration of a plan's VM with options o.
func (p *SourceParts) MoveOf(o planfile.Options) Move {
	return Move{Options: o, Login: p.Login, SSH: p.SSH, base: p.Base}
}
