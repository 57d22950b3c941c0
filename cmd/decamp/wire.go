package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/flow"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/leftover"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
	"github.com/decamp/decamp/internal/transport/landing"
	"github.com/decamp/decamp/internal/unit"
)

// dial logs in to the ESXi or vCenter at rawURL, once its certificate is trusted.
func (a *assembler) dial(ctx context.Context, rawURL string, l login) (*esx.Session, error) {
	u, err := esx.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	if l.submitted && l.passwordFile == "" {
		return nil, noCredentials(rawURL)
	}
	shown, err := esx.Fingerprint(ctx, u.Host)
	if err != nil {
		return nil, err
	}
	if err := a.trust(ctx, fleet.Endpoint(u), certificate(shown), l); err != nil {
		return nil, err
	}
	state, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	refused := &refusals{filepath.Join(state, "refused_logins.json"), u.User.Username() + "@" + fleet.Endpoint(u), time.Now}
	password := a.password(u.User.Username()+"@"+u.Host, l.passwordFile)
	return esx.Dial(ctx, esx.Config{
		URL:         u,
		Fingerprint: shown.Fingerprint,
		Log:         a.log,
		Admit:       a.admit(l.logins, refused),
		Judged: func(refusal error) {
			if err := refused.note(refusal); err != nil {
				a.log.Warn("login not noted", "err", err)
			}
		},
		Password: func(ctx context.Context) (esx.Secret, error) {
			if err := refused.check(); err != nil {
				return "", err
			}
			text, err := password(ctx)
			a.remember(refused.who, text)
			return esx.Secret(text), err
		},
	})
}

// noCredentials is the error for a submitted plan whose login has no secret: there is no default for those.
func noCredentials(rawURL string) error {
	return fault.New(fault.Denied, "a submitted plan has no credentials for %s", rawURL).
		WithHint("add source: {credentials: {name: NAME}} to the plan; an administrator adds NAME to the access file")
}

// admit has logins of a fleet, by the API and by SSH, wait for each other, and for people once
// one was refused. What they said counts more than what was refused before.
func (a *assembler) admit(l *fleet.Logins, refused *refusals) func(context.Context) (func(error), error) {
	if l == nil {
		return nil
	}
	return func(ctx context.Context) (func(error), error) {
		pass, again, err := l.Admit(ctx)
		if err == nil && again {
			if err := refused.note(nil); err != nil {
				a.log.Warn("refused logins not forgotten", "err", err)
			}
		}
		return pass, err
	}
}

// works is all that decamp migrate works with, open and logged in.
type works struct {
	url        *url.URL
	session    *esx.Session
	reader     *https.Transport    // of disks that are looked at a second time
	rereader   *https.Transport    // of samples that are compared; it has connections of its own
	transport  transport.Transport // that moves them
	to         []*destination
	store      *plan.Store
	engine     *flow.Engine
	migrator   *migrate.Migrator
	leftovers  *leftover.Store // what was changed on hosts
	shells     *hostShells
	sums       sums
	expect     string // of a trial boot
	conversion engineOptions
	trials     chan struct{}    // has room for as many as may be under way; nil: for any number
	left       func()           // tries once more to put back what an earlier run left; nil: it left nothing
	shown      func(plan.Event) // is told the events; nil until there is something to show
}

// openWorks opens the parts in the order in which they are cheap to refuse: the folder,
// the state directory, and last the host, which may mean typing a password.
func (a *assembler) openWorks(ctx context.Context, m move, rawURL string) (w *works, err error) {
	w = &works{expect: string(m.Expect), conversion: engineOf(m)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.url, err = esx.ParseURL(rawURL); err != nil {
		return w, err
	}
	if err := a.openTargets(w, m, planfile.Local); err != nil {
		return w, err
	}
	if err := a.openState(ctx, w); err != nil {
		return w, err
	}
	if w.session, err = a.dial(ctx, rawURL, m.login); err != nil {
		return w, err
	}
	w.shells = a.newHostShells(w.session, loginOf(w.url, m.login), m.ssh, w.leftovers)
	if a.tidy(ctx, w.shells) {
		w.left = func() { a.tidy(context.WithoutCancel(ctx), w.shells) }
	}
	return w, a.openTransport(ctx, w, m.Options)
}

// openTransport opens what reads disks, and what moves them.
func (a *assembler) openTransport(ctx context.Context, w *works, o planfile.Options) (err error) {
	w.reader = https.New(w.session, https.Options{MaxConnections: o.Connections, Log: a.log})
	w.rereader = https.New(w.session, https.Options{MaxConnections: migrate.RereadConnections, Log: a.log})
	w.transport, err = a.newTransport(ctx, w, o)
	return err
}

// newTransport returns what moves the disks.
func (a *assembler) newTransport(ctx context.Context, w *works, o planfile.Options) (transport.Transport, error) {
	switch o.Transport {
	case "https":
		if o.Connections == w.reader.MaxConnections() {
			return w.reader, nil
		}
		return https.New(w.session, https.Options{MaxConnections: o.Connections, Log: a.log}), nil
	case "nfc":
		return a.newNFC(w, o.NFC), nil
	}
	state, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	allow, err := lookUp(ctx, "--landing-allow", o.Landing.Allow)
	if err != nil {
		return nil, err
	}
	host := landing.WithShell{Host: w.session, Open: w.shells.Open}
	copier := a.newCopier(w, string(o.Landing.Copy))
	if choice, ok := copier.(*landing.Choice); ok {
		host.Refused = choice.Refused
	}
	whole := landing.New(host, landing.Options{
		Dir: filepath.Join(state, "landing"), Advertise: o.Landing.Advertise.Addr, Memory: int64(o.Landing.Memory),
		Ports: nfs.Ports{NFS: string(o.Landing.Listen), Portmap: string(o.Landing.Portmap)}, Allow: allow, Log: a.log,
		Leftovers: w.leftovers, Server: serverOf(w.url), Stays: a.warnStays, Copier: copier,
	})
	if o.Mode == planfile.Warmly { // a host pushes whole disks only
		return transport.Deltas{Transport: whole, Changes: a.newNFC(w, o.NFC)}, nil
	}
	return whole, nil
}

// newCopier returns how hosts are asked to copy.
func (a *assembler) newCopier(w *works, how string) landing.Copier {
	api := landing.API{Host: w.session}
	ssh := &landing.SSH{Open: w.shells.Open, Leftovers: w.leftovers, Server: serverOf(w.url)}
	switch how {
	case "api":
		return api
	case "ssh":
		return ssh
	}
	return &landing.Choice{API: api, SSH: ssh, Chosen: a.tellCopier}
}

func (a *assembler) openState(ctx context.Context, w *works) error {
	state, err := a.stateDir()
	if err != nil {
		return err
	}
	if w.engine, err = flow.Open(ctx, flow.Config{Dir: state, Log: a.log}); err != nil {
		return err
	}
	w.store, w.leftovers = plan.NewStore(state), leftover.NewStore(state)
	w.migrator = migrate.New(w.engine, w.store, migrate.Options{Version: a.version, Log: a.log, Notify: w.notify})
	return w.engine.Launch()
}

func (w *works) notify(e plan.Event) {
	if w.shown != nil {
		w.shown(e)
	}
}

// Close closes what is open, in reverse.
func (w *works) Close() error {
	var errs []error
	if w.engine != nil {
		errs = append(errs, w.engine.Close())
	}
	if w.transport != nil && w.transport != transport.Transport(w.reader) {
		errs = append(errs, w.transport.Close())
	}
	for _, t := range []*https.Transport{w.reader, w.rereader} {
		if t != nil {
			errs = append(errs, t.Close())
		}
	}
	if w.shells != nil {
		errs = append(errs, w.shells.Close())
	}
	if w.left != nil {
		w.left()
		errs = append(errs, w.shells.Close())
	}
	if w.session != nil {
		errs = append(errs, w.session.Close())
	}
	return errors.Join(errs...)
}

// putBack undoes what is on record of the server of a session.
func putBack(ctx context.Context, shells *hostShells) ([]leftover.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, putBackWait)
	defer cancel()
	session := shells.session
	host := landing.WithShell{Host: session, Open: shells.Open}
	return shells.store.PutBack(ctx, strings.ToLower(session.Addr()), map[leftover.Kind]leftover.Undo{
		leftover.NFSDatastore: func(ctx context.Context, r leftover.Record) error {
			return host.UnmountNAS(ctx, r.Host, landing.Recorded(r))
		},
		leftover.ShellJob: func(ctx context.Context, r leftover.Record) error {
			s, err := shells.Open(ctx, r.Host)
			if err != nil {
				return err
			}
			return s.End(ctx, landing.RecordedJob(r))
		},
		leftover.Snapshot: func(ctx context.Context, r leftover.Record) error {
			return shells.hands.dropSnapshot(ctx, inventory.MoRef(r.What["vm"]), r.What["name"])
		},
		leftover.SSHService: func(ctx context.Context, r leftover.Record) error {
			return shells.stop(ctx, r.Host)
		},
	})
}

// putBackWait bounds what looking after earlier runs may take from this one.
const putBackWait = 2 * time.Minute

func (w *works) open(ctx context.Context, d transport.Disk) (disk.Source, error) {
	return openDisk(ctx, w.reader, d)
}

// look reads what is on the disks of a VM that is off.
func (w *works) look(ctx context.Context, vm *inventory.VM) ([]guest.Report, error) {
	return guest.DetectEach(ctx, len(vm.Disks), func(i int) (disk.Source, error) {
		src, err := w.open(ctx, transport.Disk{VM: vm, Disk: &vm.Disks[i]})
		if err != nil {
			return nil, fmt.Errorf("disk %d: %w", vm.Disks[i].Key, err)
		}
		return src, nil
	})
}

// openDisk keeps a nil *https.Source from becoming a disk.Source that is not nil.
func openDisk(ctx context.Context, t *https.Transport, d transport.Disk) (disk.Source, error) {
	src, err := t.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	return src, nil
}

// nvram reads what the firmware of a VM that is off remembers.
func (w *works) nvram(ctx context.Context, vm *inventory.VM) ([]byte, error) {
	return w.session.ReadFile(ctx, vm.Datacenter, vm.NVRAM, efi.MaxVMware)
}

// planWorks is what a plan is checked with, logged in.
type planWorks struct {
	*works
	a     *assembler
	login login
	ssh   sshOptions
	base  string // folder that the plan's relative paths are from
	role  planfile.Role
}

// openSource logs in, and prepares what hosts are asked by.
func (a *assembler) openSource(ctx context.Context, p *planWorks) (err error) {
	state, err := a.stateDir()
	if err != nil {
		return err
	}
	if p.leftovers == nil { // not those that a fleet shares
		p.leftovers = leftover.NewStore(state)
	}
	if p.session, err = a.dial(ctx, p.url.String(), p.login); err != nil {
		return err
	}
	p.shells = a.newHostShells(p.session, loginOf(p.url, p.login), p.ssh, p.leftovers)
	return nil
}

// openURL is openSource of what a URL names.
func (a *assembler) openURL(ctx context.Context, p *planWorks, rawURL string) (err error) {
	if p.url, err = esx.ParseURL(rawURL); err != nil {
		return err
	}
	return a.openSource(ctx, p)
}

// finder finds VMs by what people call them.
func finder(vms []inventory.VM) planfile.Finder { return esx.NewIndex(vms) }

func (p *planWorks) rig(f *planfile.File) preflight.Rig {
	return preflight.Rig{
		Source: p.session,
		Names:  finder,
		Place: func(ctx context.Context, to planfile.Destination, o planfile.Options) (preflight.Place, error) {
			m := p.moveOf(o)
			m.maps = f.Maps.Value()
			at, err := p.a.expand(to, p.role)
			if err != nil {
				return nil, err
			}
			place, err := openTarget(at, m)
			if err != nil {
				return nil, err
			}
			return place, answers(ctx, place)
		},
		Transport: p.mover,
		Reach:     reachHost,
		Examine:   p.foresee,
		Now:       time.Now,
	}
}

// mover returns a transport that the caller closes.
func (p *planWorks) mover(ctx context.Context, o planfile.Options) (transport.Transport, error) {
	if o.Transport == "https" {
		return https.New(p.session, https.Options{MaxConnections: o.Connections, Log: p.a.log}), nil
	}
	if free, known := availableMemory(); o.Transport == "landing" && known && int64(o.Landing.Memory) > free {
		return nil, fault.New(fault.Invalid, "a landing is to have %s of memory, and there are %s", unit.Binary(int64(o.Landing.Memory)), unit.Binary(free)).
			WithHint("say less: landing: {memory: %dM} leaves room for the rest", free/4*3>>20)
	}
	return p.a.newTransport(ctx, p.works, o)
}

// reachHost has an ESXi host of a vCenter show its certificate.
func reachHost(ctx context.Context, h inventory.Host) error {
	_, err := esx.Fingerprint(ctx, cmp.Or(h.Address, h.Name))
	return err
}

// openPlan logs in to the source of a plan; what l has stands above what the plan says.
func (a *assembler) openPlan(ctx context.Context, l login, f *planfile.File, folder string) (*planWorks, error) {
	p := &planWorks{a: a, works: &works{}, login: l, base: folder, role: planfile.Local}
	var err error
	if err = a.planLogin(&p.login, f, folder, planfile.Local); err != nil {
		return p, err
	}
	if p.ssh, err = a.planSSH(f, folder, planfile.Local); err != nil {
		return p, err
	}
	return p, a.openURL(ctx, p, string(f.Source.URL))
}

// moveOf is the move of a VM of a plan.
func (p *planWorks) moveOf(o planfile.Options) move {
	return move{Options: o, login: p.login, ssh: p.ssh, base: p.base}
}
