package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
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
	"github.com/decamp/decamp/internal/mount"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
	"github.com/decamp/decamp/internal/transport/landing"
)

// dial logs in to the ESXi or vCenter at rawURL, once its certificate is trusted.
func (a *app) dial(ctx context.Context, rawURL string, l login) (*esx.Session, error) {
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
func (a *app) admit(l *fleet.Logins, refused *refusals) func(context.Context) (func(error), error) {
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
	trials     chan struct{} // has room for as many as may be under way; nil: for any number
	left       func()        // tries once more to put back what an earlier run left; nil: it left nothing
	shown      progress      // who is told the events; nil until there is something to show
}

// openWorks opens the parts in the order in which they are cheap to refuse: the folder,
// the state directory, and last the host, which may mean typing a password.
func (a *app) openWorks(ctx context.Context, m move, rawURL string) (w *works, err error) {
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
func (a *app) openTransport(ctx context.Context, w *works, o planfile.Options) (err error) {
	w.reader = https.New(w.session, https.Options{MaxConnections: o.Connections, Log: a.log})
	w.rereader = https.New(w.session, https.Options{MaxConnections: migrate.RereadConnections, Log: a.log})
	w.transport, err = a.newTransport(ctx, w, o)
	return err
}

// newTransport returns what moves the disks.
func (a *app) newTransport(ctx context.Context, w *works, o planfile.Options) (transport.Transport, error) {
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
func (a *app) newCopier(w *works, how string) landing.Copier {
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

func (a *app) openState(ctx context.Context, w *works) error {
	state, err := a.stateDir()
	if err != nil {
		return err
	}
	if w.engine, err = flow.Open(ctx, flow.Config{Dir: state, Log: a.log}); err != nil {
		return err
	}
	w.store, w.leftovers = plan.NewStore(state), leftover.NewStore(state)
	w.migrator = migrate.New(w.engine, w.store, migrate.Options{Version: version, Log: a.log, Notify: w.notify})
	return w.engine.Launch()
}

func (w *works) notify(e plan.Event) {
	if w.shown != nil {
		w.shown.event(e)
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

// published is a VM's folder, for decamp verify.
type published struct {
	folder string
	record *dir.Record
	target *dir.Target
}

func openPublished(folder string) (*published, error) {
	record, err := dir.ReadRecord(folder)
	if err != nil {
		return nil, err
	}
	t, err := dir.New(filepath.Dir(filepath.Clean(folder)), dir.Options{})
	return &published{folder, record, t}, err
}

// variables are an error if those of its EFI firmware are not what was published.
func (p *published) variables() error { return dir.CheckNVRAM(p.folder, p.record) }

// domainName is what virsh calls the VM.
func (p *published) domainName() string { return dir.DomainName(p.record.Called()) }

// whereabouts say where the VM is.
func (p *published) whereabouts() string {
	if d := p.record.Delivered; d != nil {
		return fmt.Sprintf("delivered to %s as %s (%s)", plain(d.Place), plain(d.ID), plain(d.Name))
	}
	return "published in " + p.folder
}

// here is a NotFound if the images were delivered, and cleared from the stage.
func (p *published) here() error {
	d := p.record.Delivered
	if d == nil || slices.ContainsFunc(p.images(), func(img targets.Image) bool { return exists(img.Path) }) {
		return nil
	}
	if at := dir.Started(p.folder); !at.IsZero() {
		return fault.New(fault.NotFound, "the images of %s are not here any more: they were delivered to %s as %s, and decamp started the VM there on %s", p.record.Source.Name, d.Place, d.ID, at.Local().Format(time.DateTime)).
			WithHint("the manifests in %s say what was delivered; the VM has changed its disks since, as expected after a start", fault.Quote(p.folder))
	}
	return fault.New(fault.NotFound, "the images of %s are not here any more: they were delivered to %s as %s", p.record.Source.Name, d.Place, d.ID).
		WithHint("the manifests in %s say what was delivered; to compare, export a disk from there as raw, before the first start, and name the manifest's image so", fault.Quote(p.folder))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// images are the published images where they stand now: the folder may have been moved.
func (p *published) images() []targets.Image {
	var images []targets.Image
	for _, img := range p.record.Images {
		path := filepath.Join(p.folder, img.File)
		images = append(images, targets.Image{
			Key: img.Key, Path: path, Final: path, Manifest: filepath.Join(p.folder, img.Manifest),
			Format: img.Format, Size: img.Size, Root: img.Root, Copied: img.Copied,
		})
	}
	return images
}

// converted reports whether an image was changed since it was copied.
func (p *published) converted() bool {
	return slices.ContainsFunc(p.record.Images, func(img dir.RecordedImage) bool { return img.Copied != "" })
}

// origin is the VM that a published one came from, open for a second reading.
type origin struct {
	session   *esx.Session
	transport *https.Transport
	vm        *inventory.VM
}

func (a *app) openOrigin(ctx context.Context, rawURL string, l login, ref inventory.MoRef) (*origin, error) {
	session, err := a.dial(ctx, rawURL, l)
	if err != nil {
		return nil, err
	}
	o := &origin{session: session, transport: https.New(session, https.Options{Log: a.log})}
	if o.vm, err = session.VMByRef(ctx, ref); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *origin) disk(ctx context.Context, key int32) (disk.Source, error) {
	d, ok := o.vm.Disk(key)
	if !ok {
		return nil, fault.New(fault.NotFound, "VM %s has no disk %d any more", o.vm.Name, key)
	}
	return openDisk(ctx, o.transport, transport.Disk{VM: o.vm, Disk: d})
}

func (o *origin) Close() error { return errors.Join(o.transport.Close(), o.session.Close()) }

// moved are the VMs that stand in a folder, as they were described when they were moved. One that
// cannot be read is left out: decamp verify says why.
func moved(folder string) (vms []inventory.VM) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil // told by whoever needs the folder
	}
	for _, e := range entries {
		if r, err := dir.ReadRecord(filepath.Join(folder, e.Name())); err == nil {
			vms = append(vms, *r.Source)
		}
	}
	return vms
}

// mounted is a host shown as a folder, with what it stands on.
type mounted struct {
	session   *esx.Session
	transport *https.Transport
	mount     *mount.Mount
}

// mountStall is how long a connection of a mount may deliver nothing: others wait behind
// it, and a read has its own deadline, before which another connection should be tried.
const mountStall = 20 * time.Second

// openMount mounts the host of session at dir, and takes the session over. Where stores is
// not nil, the root is what it says and not what the host says.
func (a *app) openMount(ctx context.Context, session *esx.Session, stores []inventory.Datastore, dir string, connections int, o mount.Options) (*mounted, error) {
	o.Log = a.log
	m := &mounted{session: session}
	m.transport = https.New(session, https.Options{MaxConnections: connections, Stall: mountStall, Log: a.log})
	var host mount.Host = mount.NewRemote(session, m.transport, a.log)
	if stores != nil {
		host = mount.Listed{Host: host, Stores: stores}
	}
	var err error
	if m.mount, err = mount.New(ctx, host, dir, o); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// wait returns when ctx ends or the file system was unmounted.
func (m *mounted) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-m.mount.Done():
	}
}

// Close unmounts and logs out.
func (m *mounted) Close() error {
	var errs []error
	if m.mount != nil {
		errs = append(errs, m.mount.Close())
	}
	return errors.Join(append(errs, m.transport.Close(), m.session.Close())...)
}

// planWorks is what a plan is checked with, logged in.
type planWorks struct {
	*works
	a     *app
	login login
	ssh   sshOptions
	base  string // folder that the plan's relative paths are from
	role  planfile.Role
}

// openSource logs in, and prepares what hosts are asked by.
func (a *app) openSource(ctx context.Context, p *planWorks) (err error) {
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
func (a *app) openURL(ctx context.Context, p *planWorks, rawURL string) (err error) {
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
		return nil, fault.New(fault.Invalid, "a landing is to have %s of memory, and there are %s", size(int64(o.Landing.Memory)), size(free)).
			WithHint("say less: landing: {memory: %dM} leaves room for the rest", free/4*3>>20)
	}
	return p.a.newTransport(ctx, p.works, o)
}

// reachHost has an ESXi host of a vCenter show its certificate.
func reachHost(ctx context.Context, h inventory.Host) error {
	_, err := esx.Fingerprint(ctx, cmp.Or(h.Address, h.Name))
	return err
}
