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
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
	"github.com/decamp/decamp/internal/transport/landing"
	"github.com/decamp/decamp/internal/units"
	"github.com/decamp/decamp/internal/workflow"
)

// Dial logs in to the ESXi or vCenter at rawURL, once its certificate is trusted.
func (a *Assembler) Dial(ctx context.Context, rawURL string, l Login) (*esx.Session, error) {
	u, err := esx.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	if l.submitted && l.PasswordFile == "" {
		return nil, NoCredentials(rawURL)
	}
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
	refused := &refusals{filepath.Join(state, "refused_logins.json"), u.User.Username() + "@" + fleet.Endpoint(u), time.Now}
	password := a.Password(u.User.Username()+"@"+u.Host, l.PasswordFile)
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

// NoCredentials is the error for a submitted plan whose login has no secret: there is no default for those.
func NoCredentials(rawURL string) error {
	return fault.New(fault.Denied, "a submitted plan has no credentials for %s", rawURL).
		WithHint("add source: {credentials: {name: NAME}} to the plan; an administrator adds NAME to the access file")
}

// newAdmission makes logins of a fleet, by API and SSH, wait for each other, and for the user after a refusal.
// A decision of the user takes precedence over earlier refusals.
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

// Parts is all that decamp migrate works with, open and logged in.
type Parts struct {
	URL          *url.URL
	Session      *esx.Session
	Reader       *https.Transport    // reader of disks for a second look
	Rereader     *https.Transport    // reader of samples for the comparison, over separate connections
	Transport    transport.Transport // transport of the disks
	To           []*Destination
	Store        *journal.Store
	engine       *workflow.Engine
	Migrator     *migrate.Migrator
	Leftovers    *cleanup.Store // records of changes on hosts
	Shells       *HostShells
	sums         hostSums
	Expect       string // text that a trial boot expects
	Conversion   EngineOptions
	Trials       chan struct{}       // has room for as many as may be under way; nil: for any number
	retryCleanup func()              // tries once more to put back what an earlier run left; nil: it left nothing
	Shown        func(journal.Event) // receives the events; nil until a display exists
}

// Open opens the parts in the order in which they are cheap to refuse: the folder,
// the state directory, and last the host, which may mean typing a password.
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
	if a.Tidy(ctx, w.Shells) {
		w.retryCleanup = func() { a.Tidy(context.WithoutCancel(ctx), w.Shells) }
	}
	return w, a.openTransport(ctx, w, m.Options)
}

// openTransport opens what reads disks, and what moves them.
func (a *Assembler) openTransport(ctx context.Context, w *Parts, o planfile.Options) (err error) {
	w.Reader = https.New(w.Session, https.Options{MaxConnections: o.Connections, Log: a.Log})
	w.Rereader = https.New(w.Session, https.Options{MaxConnections: migrate.RereadConnections, Log: a.Log})
	w.Transport, err = a.NewTransport(ctx, w, o)
	return err
}

// NewTransport returns what moves the disks.
func (a *Assembler) NewTransport(ctx context.Context, w *Parts, o planfile.Options) (transport.Transport, error) {
	switch o.Transport {
	case "https":
		if o.Connections == w.Reader.MaxConnections() {
			return w.Reader, nil
		}
		return https.New(w.Session, https.Options{MaxConnections: o.Connections, Log: a.Log}), nil
	case "nfc":
		return a.newNFC(w, o.NFC), nil
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
	if o.Mode == planfile.Warmly { // a host pushes whole disks only
		return transport.Deltas{Transport: whole, Changes: a.newNFC(w, o.NFC)}, nil
	}
	return whole, nil
}

// newCopier returns how hosts are asked to copy. chosen is called if a host is asked by SSH.
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

// OpenState opens the state directory, and launches its engine.
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
	warm.Register(w.Migrator)
	return w.engine.Launch()
}

func (w *Parts) passEvent(e journal.Event) {
	if w.Shown != nil {
		w.Shown(e)
	}
}

// Close closes the open parts in reverse order.
func (w *Parts) Close() error {
	var errs []error
	if w.engine != nil {
		errs = append(errs, w.engine.Close())
	}
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

// PutBack reverts the recorded changes on the server of a session.
func PutBack(ctx context.Context, shells *HostShells) ([]cleanup.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	session := shells.session
	host := landing.WithShell{Host: session, Open: shells.Open}
	return shells.store.PutBack(ctx, strings.ToLower(session.Addr()), map[cleanup.Kind]cleanup.Undo{
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
			return shells.changer.removeSnapshot(ctx, inventory.MoRef(r.What["vm"]), r.What["name"])
		},
		cleanup.SSHService: func(ctx context.Context, r cleanup.Record) error {
			return shells.stopSSH(ctx, r.Host)
		},
	})
}

// cleanupTimeout bounds what looking after earlier runs may take from this one.
const cleanupTimeout = 2 * time.Minute

func (w *Parts) openDisk(ctx context.Context, d transport.Disk) (disk.Source, error) {
	return OpenDisk(ctx, w.Reader, d)
}

// Look reads the disks of a VM that is off.
func (w *Parts) Look(ctx context.Context, vm *inventory.VM) ([]guest.Report, error) {
	return guest.DetectEach(ctx, len(vm.Disks), func(i int) (disk.Source, error) {
		src, err := w.openDisk(ctx, transport.Disk{VM: vm, Disk: &vm.Disks[i]})
		if err != nil {
			return nil, fmt.Errorf("disk %d: %w", vm.Disks[i].Key, err)
		}
		return src, nil
	})
}

// OpenDisk keeps a nil *https.Source from becoming a disk.Source that is not nil.
func OpenDisk(ctx context.Context, t *https.Transport, d transport.Disk) (disk.Source, error) {
	src, err := t.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	return src, nil
}

// readNVRAM reads what the firmware of a VM that is off remembers.
func (w *Parts) readNVRAM(ctx context.Context, vm *inventory.VM) ([]byte, error) {
	return w.Session.ReadFile(ctx, vm.Datacenter, vm.NVRAM, efi.MaxVMware)
}

// SourceParts is what a plan is checked with, logged in.
type SourceParts struct {
	*Parts
	Assembler *Assembler
	Login     Login
	SSH       SSHOptions
	Base      string // folder that the plan's relative paths are from
	Role      planfile.Role
}

// OpenSource logs in, and prepares what hosts are asked by.
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

// OpenURL is openSource of what a URL names.
func (a *Assembler) OpenURL(ctx context.Context, p *SourceParts, rawURL string) (err error) {
	if p.URL, err = esx.ParseURL(rawURL); err != nil {
		return err
	}
	return a.OpenSource(ctx, p)
}

// newFinder finds VMs by what people call them.
func newFinder(vms []inventory.VM) planfile.Finder { return esx.NewIndex(vms) }

// Rig returns what the plan is checked with.
func (p *SourceParts) Rig(f *planfile.File) preflight.Rig {
	return preflight.Rig{
		Source: p.Session,
		Names:  newFinder,
		Place: func(ctx context.Context, to planfile.Destination, o planfile.Options) (preflight.Place, error) {
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

// Mover returns a transport that the caller closes.
func (p *SourceParts) Mover(ctx context.Context, o planfile.Options) (transport.Transport, error) {
	if o.Transport == "https" {
		return https.New(p.Session, https.Options{MaxConnections: o.Connections, Log: p.Assembler.Log}), nil
	}
	if free, known := availableMemory(); o.Transport == "landing" && known && int64(o.Landing.Memory) > free {
		return nil, fault.New(fault.Invalid, "a landing is to have %s of memory, and there are %s", units.Binary(int64(o.Landing.Memory)), units.Binary(free)).
			WithHint("say less: landing: {memory: %dM} leaves room for the rest", free/4*3>>20)
	}
	return p.Assembler.NewTransport(ctx, p.Parts, o)
}

// reachHost has an ESXi host of a vCenter show its certificate.
func reachHost(ctx context.Context, h inventory.Host) error {
	_, err := esx.Fingerprint(ctx, cmp.Or(h.Address, h.Name))
	return err
}

// OpenPlan logs in to the source of a plan. Values of l take precedence over the plan.
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

// MoveOf is the move of a VM of a plan.
func (p *SourceParts) MoveOf(o planfile.Options) Move {
	return Move{Options: o, Login: p.Login, SSH: p.SSH, base: p.Base}
}
