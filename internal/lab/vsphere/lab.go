package vsphere

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/lab/nfchost"
	"github.com/decamp/decamp/internal/lab/socket"
)

// Lab is a running emulation of an ESXi host or a vCenter. Its methods may be called concurrently. Its
// parts are embedded: their exported methods are methods of Lab.
type Lab struct {
	cfg Config // configuration with defaults; read-only after Start

	*inventory  // datastores, VMs and disks
	*listeners  // addresses of the API and of /folder
	*guestPower // VMs that are switched on and off
	*nasMounts  // NFS datastores that hosts have mounted at run time
	*nfcHosts   // port 902 of the hosts
	*sshHosts   // SSH servers of the hosts

	control *control               // JSON API for other processes; nil before start
	faults  *Faults                // active faults
	stats   *counters              // counters
	tags    *tagService            // REST service for tags
	jobs    jobs                   // copies and processes of the hosts
	ports   ports                  // ports that are reserved until Close
	shape   atomic.Pointer[Limits] // limits in force
	buffers bufferPool             // buffers for bodies

	closing  sync.Once   // runs close once
	closeErr error       // result of close
	detach   func() bool // removes Close from the context of Start
}

// Start builds the inventory and listens. The emulation runs until Close, or until ctx ends.
func Start(ctx context.Context, cfg Config) (*Lab, error) {
	l := &Lab{cfg: cfg.withDefaults(), stats: newCounters()}
	if err := l.cfg.validate(); err != nil {
		return nil, fmt.Errorf("emulator configuration: %w", err)
	}
	l.shape.Store(&l.cfg.Limits)
	l.jobs.init()
	l.faults = newFaults(l.cfg.Faults)
	l.inventory = &inventory{cfg: &l.cfg, machines: map[types.ManagedObjectReference]*machine{}}
	l.listeners = &listeners{lab: l, cfg: &l.cfg, ports: &l.ports, hosts: map[string]*endpoint{}}
	l.guestPower = &guestPower{cfg: &l.cfg, inventory: l.inventory}
	l.nasMounts = &nasMounts{cfg: &l.cfg, jobs: &l.jobs}
	l.nfcHosts = newNFCHosts(&l.cfg, l.inventory, l.listeners)
	l.sshHosts = &sshHosts{lab: l, cfg: &l.cfg, ports: &l.ports, inventory: l.inventory}
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

// start builds the inventory and opens all listeners.
func (l *Lab) start() error {
	if err := l.makeDir(); err != nil {
		return err
	}
	var err error
	if l.model, err = newModel(l.cfg); err != nil {
		return fmt.Errorf("create model: %w", err)
	}
	if err := l.reserveAddresses(); err != nil {
		return err
	}
	b := &builder{lab: l, ctx: l.newContext(), reg: l.model.Map()}
	b.reg.AddHandler(&watcher{lab: l})
	if err := b.buildInventory(); err != nil {
		return err
	}
	l.tags = newTagService(l)
	(&vimAPI{lab: l}).serveModel()
	if err := l.Resume(); err != nil {
		return err
	}
	l.control, err = startControl(l)
	return err
}

// Close stops serving, waits for all goroutines and removes a temporary folder. It may be called more
// than once.
func (l *Lab) Close() error {
	l.closing.Do(func() { l.closeErr = l.close() })
	return l.closeErr
}

// close implements Close. It may be called after start has failed.
func (l *Lab) close() error {
	if l.detach != nil {
		l.detach()
	}
	var errs []error
	if l.control != nil {
		errs = append(errs, l.control.close())
	}
	for _, e := range l.allEndpoints() { // before stalled requests continue: they are cut off, and not sent to their end
		errs = append(errs, e.closeListener())
	}
	l.faults.Release()
	l.guestPower.stopTimers()
	l.nasMounts.dropAll() // nothing waits for a server that is gone
	for _, h := range l.sshHosts.all {
		errs = append(errs, h.close())
	}
	l.jobs.close()
	l.nasMounts.dropAll()
	errs = append(errs, l.nfcHosts.eachServer((*nfchost.Server).Close))
	l.drainRequests()
	for _, m := range l.machines {
		m.writer.stopClock()
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

// KillSessions ends all sessions, so that existing cookies become invalid.
func (l *Lab) KillSessions() {
	for _, e := range l.allEndpoints() {
		e.auth.killAll()
	}
	if l.tags != nil {
		l.tags.killAll()
	}
}

// Stop closes all connections and the listening ports, and ends all sessions. Resume listens at the
// same addresses again.
func (l *Lab) Stop() error {
	errs := []error{l.nfcHosts.eachServer((*nfchost.Server).Close)}
	for _, e := range l.allEndpoints() {
		errs = append(errs, e.closeListener())
		socket.WaitClosed(e.addr)
	}
	l.KillSessions()
	return errors.Join(errs...)
}

// Resume listens again after Stop.
func (l *Lab) Resume() error {
	errs := []error{l.nfcHosts.eachServer((*nfchost.Server).Open)}
	for _, e := range l.allEndpoints() {
		errs = append(errs, e.openListener())
	}
	return errors.Join(errs...)
}

// Restart calls Stop and Resume, as a restart of the management agents does.
func (l *Lab) Restart() error {
	if err := l.Stop(); err != nil {
		return fmt.Errorf("stop lab: %w", err)
	}
	return l.Resume()
}

// User returns the name of the only account.
func (l *Lab) User() string { return l.cfg.User }

// Password returns the password of the account.
func (l *Lab) Password() string { return l.cfg.Password }

// Faults returns the set of active faults.
func (l *Lab) Faults() *Faults { return l.faults }

// currentLimits returns the limits in force.
func (l *Lab) currentLimits() Limits { return *l.shape.Load() }

// SetLimits changes the limits. A rate per connection applies to new connections.
func (l *Lab) SetLimits(limits Limits) {
	l.shape.Store(&limits)
	for _, dc := range l.datacenters {
		for _, ds := range dc.datastores {
			ds.rate.setRate(int64(limits.DatastoreRate))
		}
	}
}

// Stats returns a copy of the counters.
func (l *Lab) Stats() Stats { return l.stats.snapshot() }

// ResetStats sets all counters to zero, except that of open NFC sessions.
func (l *Lab) ResetStats() { l.stats.reset() }
