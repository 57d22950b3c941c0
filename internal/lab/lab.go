package lab

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/lab/nfchost"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Lab is a running emulated ESXi or vCenter. Its methods may be called concurrently.
type Lab struct {
	cfg     Config
	dir     string
	tempDir bool

	model       *simulator.Model
	datacenters []*datacenter
	machines    map[types.ManagedObjectReference]*machine
	contents    []content
	noiseBytes  []byte

	main    *endpoint
	hosts   map[string]*endpoint // by inventory name; empty unless Config.HostListeners
	control *control
	faults  *Faults
	stats   *counters
	guests  guests
	nas     nasTable
	nfc     *nfcHosts
	shells  []*shellHost // as the hosts were added
	tags    *tagService
	jobs    jobs
	ports   ports

	serving sync.RWMutex // held for reading by each request
	closed  bool         // guarded by serving
	waits   waits
	shape   atomic.Pointer[Limits]
	buffers bufferPool

	closing  sync.Once
	closeErr error
	detach   func() bool // unhooks Close from the context of Start
}

// Start builds the inventory and listens. The lab runs until Close, or until ctx ends.
func Start(ctx context.Context, cfg Config) (*Lab, error) {
	l := &Lab{cfg: cfg.withDefaults(), machines: map[types.ManagedObjectReference]*machine{}, stats: newCounters(), hosts: map[string]*endpoint{}}
	if err := l.cfg.check(); err != nil {
		return nil, fmt.Errorf("lab config: %w", err)
	}
	l.shape.Store(&l.cfg.Limits)
	l.jobs.init()
	l.faults = newFaults(l.cfg.Faults)
	l.nfc = newNFCHosts(l)
	if err := l.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start lab: %w", err), l.Close())
	}
	started := make(chan struct{}) // closed once detach is set: ctx may end at once
	l.detach = context.AfterFunc(ctx, func() {
		<-started
		_ = l.Close() // a later Close returns the error
	})
	close(started)
	return l, nil
}

func (l *Lab) start() error {
	if err := l.makeDir(); err != nil {
		return err
	}
	var err error
	if l.model, err = newModel(l.cfg); err != nil {
		return fmt.Errorf("create model: %w", err)
	}
	if err := l.listen(); err != nil {
		return err
	}
	b := &builder{lab: l, ctx: l.context(), reg: l.model.Map()}
	b.reg.AddHandler(&watcher{lab: l})
	if err := b.build(); err != nil {
		return err
	}
	l.tags = newTagService(l)
	l.serveModel()
	if err := l.Resume(); err != nil {
		return err
	}
	return l.startControl()
}

// listen reserves the addresses: the inventory names some of them. Nothing is served yet.
func (l *Lab) listen() error {
	var err error
	if l.main, err = l.newEndpoint("localhost.localdomain", l.cfg.Addr); err != nil || !l.cfg.HostListeners {
		return err
	}
	for _, dc := range l.cfg.Datacenters {
		for _, host := range dc.Hosts {
			if l.hosts[host], err = l.newEndpoint(host, "127.0.0.1:0"); err != nil {
				return err
			}
		}
	}
	return nil
}

// hostName is what the inventory calls a host: its address if it listens by itself, since
// clients with a service ticket go to the host by its name.
func (l *Lab) hostName(host string) string {
	if e := l.hosts[host]; e != nil {
		return e.addr
	}
	return host
}

func (l *Lab) makeDir() (err error) {
	l.dir = l.cfg.Dir
	if l.dir == "" {
		l.tempDir = true
		l.dir, err = os.MkdirTemp("", "decamp-lab-")
		return err
	}
	return os.MkdirAll(l.dir, 0o700)
}

// context returns a simulator context of its own: the simulator lets a context that holds
// a lock pass, so two goroutines must never share one.
func (l *Lab) context() *simulator.Context {
	ctx := *l.model.Service.Context
	return &ctx
}

// serveModel connects the simulator's SOAP handlers to the lab's rules.
func (l *Lab) serveModel() {
	svc := l.model.Service
	svc.Listen = &url.URL{Scheme: "https", Host: l.main.addr, Path: "/sdk", User: url.UserPassword(l.cfg.User, l.cfg.Password)}
	reg := l.model.Map()
	reg.Handler = l.hook
	sm := reg.SessionManager()
	sm.ServiceHostName = l.main.addr
	sm.ValidLogin = func(req *types.Login) bool { return l.main.door.password(req.UserName, req.Password) }
	l.license(reg)
	svc.RegisterSDK(reg, reg.Path+"/vimService")
	pc := &collector{}
	pc.Self = l.model.ServiceContent.PropertyCollector
	reg.Put(pc)
	reg.Put(&nfcService{Self: nfcServiceRef(l.cfg.VCenter), lab: l})
	svc.ServeMux.HandleFunc(reg.Path+"/vimServiceVersions.xml", svc.ServiceVersions)
	l.main.sdk, l.main.dcs = svc.ServeMux, l.datacenters
	for _, dc := range l.datacenters {
		asHost := &datacenter{path: "ha-datacenter", datastores: dc.datastores}
		for _, host := range dc.spec.Hosts {
			if e := l.hosts[host]; e != nil {
				e.dcs = []*datacenter{asHost}
			}
		}
	}
}

// Close stops serving, waits for every goroutine and removes a temporary folder. It may be
// called more than once.
func (l *Lab) Close() error {
	l.closing.Do(func() { l.closeErr = l.close() })
	return l.closeErr
}

func (l *Lab) close() error {
	if l.detach != nil {
		l.detach()
	}
	var errs []error
	if l.control != nil {
		errs = append(errs, l.control.close())
	}
	for _, e := range l.endpoints() { // before what is stalled goes on: it is cut off, and not sent to its end
		errs = append(errs, e.close())
	}
	l.faults.Release()
	l.guests.stop()
	l.nas.abandon() // nothing waits for a server that is gone
	for _, h := range l.shells {
		errs = append(errs, h.close())
	}
	l.jobs.close()
	l.nas.abandon()
	errs = append(errs, l.nfc.each((*nfchost.Server).Close))
	l.drain()
	for _, m := range l.machines {
		m.writer.halt()
	}
	errs = append(errs, l.closeStorage(), l.ports.close())
	if l.model != nil {
		l.model.Remove()
	}
	if l.tempDir {
		errs = append(errs, os.RemoveAll(l.dir))
	}
	return errors.Join(errs...)
}

// drain waits for the requests being served. A WaitForUpdates that its client gave up on
// would go on for ever; it is cancelled until it hears.
func (l *Lab) drain() {
	for !l.serving.TryLock() {
		l.waits.cancelAll()
		time.Sleep(time.Millisecond)
	}
	l.closed = true
	l.serving.Unlock()
}

func (l *Lab) closeStorage() error {
	var errs []error
	for _, c := range l.contents {
		errs = append(errs, c.Close())
	}
	for _, dc := range l.datacenters {
		for _, ds := range dc.datastores {
			errs = append(errs, ds.root.Close())
		}
	}
	return errors.Join(errs...)
}

// noise returns the bytes generated disks are cut from, made when first needed.
func (l *Lab) noise() []byte {
	if l.noiseBytes == nil {
		l.noiseBytes = newNoise()
	}
	return l.noiseBytes
}

func (l *Lab) datacenter(name string) *datacenter {
	for _, dc := range l.datacenters {
		if dc.spec.Name == name {
			return dc
		}
	}
	return nil
}

func (l *Lab) machine(name string) (*machine, error) {
	for _, m := range l.machines {
		if m.spec.Name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no VM %q in the lab", name)
}

func (l *Lab) endpoints() []*endpoint {
	var all []*endpoint
	if l.main != nil {
		all = append(all, l.main)
	}
	for _, e := range l.hosts {
		if e != nil {
			all = append(all, e)
		}
	}
	return all
}

// now reads the lab's clock.
func (l *Lab) now() time.Time { return l.cfg.now() }
