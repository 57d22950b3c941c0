// Package land serves a folder as a datastore that ESXi hosts write to, and detects complete files.
package land

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/nfs/filewatch"
)

// Options describe a datastore.
type Options struct {
	Export    string   // folder to serve
	Allow     []string // hosts that may mount the folder
	Advertise string   // address of this machine for hosts; empty: by the route
	Listen    string   // address of NFS and MOUNT
	Portmap   string   // address of the port mapper, or none
	Durable   bool     // acknowledge writes only when they are on the medium
	ReadOnly  bool     // refuse changes
	KeepRoot  bool     // the hosts' root keeps its permissions

	Warn func(format string, args ...any) // prints a warning
	Log  *slog.Logger
}

// A Landing serves a folder and reports its files. Its methods may be called concurrently.
type Landing struct {
	Facts Facts // how to use the datastore

	warn   func(format string, args ...any)
	watch  *filewatch.Watch // detects when files are complete
	server *nfs.Server
	ports  *nfs.Listeners

	mu     sync.Mutex      // guards warned
	warned map[string]bool // refusals, each once
}

// Open listens on the ports, and warns of users of this machine that can access the files. Run serves; a
// caller that does not call Run calls Close.
func Open(ctx context.Context, o Options) (_ *Landing, err error) {
	dir, err := filepath.Abs(o.Export)
	if err != nil {
		return nil, err
	}
	hosts, err := assemble.LookUp(ctx, "--allow", o.Allow)
	if err != nil {
		return nil, err
	}
	l := &Landing{warn: o.Warn, watch: filewatch.New(dir), warned: map[string]bool{}}
	l.server, err = nfs.New(nfs.Options{Exports: []nfs.Export{l.exportOf(dir, o.ReadOnly)}, Admit: l.newAllowList(hosts), Durable: o.Durable, NoRootSquash: o.KeepRoot, Log: o.Log})
	if err != nil {
		return nil, err
	}
	if l.ports, err = nfs.Listen(ctx, nfs.Ports{NFS: o.Listen, Portmap: o.Portmap}); err != nil {
		return nil, errors.Join(err, l.server.Close())
	}
	for _, warning := range localAccess(dir, hosts, ownAddresses()) {
		o.Warn("%s", warning)
	}
	if l.Facts, err = newFacts(o, dir, hosts, l.ports.NFS.Addr()); err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	return l, nil
}

// Close closes a landing that does not run.
func (l *Landing) Close(ctx context.Context) error {
	return errors.Join(l.ports.Close(ctx), l.server.Close())
}

// exportOf returns the export of the folder. It reports each opened file to the watch.
func (l *Landing) exportOf(dir string, readOnly bool) nfs.Export {
	e := nfs.Export{Path: dir, Dir: dir, Open: func(name string) (nfs.Content, error) {
		l.watch.Used(name)
		return nil, nil // the file itself
	}}
	if readOnly {
		e.Writable = func(name string) bool {
			l.warnRefused("a change of "+strconv.Quote(name), "the folder is served with --read-only")
			return false
		}
	}
	return e
}

// newAllowList returns the function that accepts the addresses of h. It reports rejected addresses.
func (l *Landing) newAllowList(h assemble.Hosts) func(netip.Addr) bool {
	return func(addr netip.Addr) bool {
		if h.Admit(addr) {
			return true
		}
		l.warnRefused("a connection from "+addr.Unmap().String(), "no --allow matches it")
		return false
	}
}

// maxRefusals limits the memory for reported refusals.
const maxRefusals = 1000

// warnRefused reports each refusal once.
func (l *Landing) warnRefused(what, why string) {
	l.mu.Lock()
	again := l.warned[what] || len(l.warned) == maxRefusals
	l.warned[what] = true
	l.mu.Unlock()
	if !again {
		l.warn("refused %s: %s", what, why)
	}
}

// watchInterval is the time between checks of the files.
const watchInterval = time.Second

// Run serves until ctx ends, and calls changed for each file whose state has changed. Then it writes the
// received files to the medium, and calls ended.
func (l *Landing) Run(ctx context.Context, changed func(filewatch.File), ended func(End) error) error {
	stopped := make(chan error, 1)
	go func() { stopped <- l.server.Run(ctx, l.ports) }()
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	report := func(now time.Time) {
		for _, f := range l.watch.Poll(now) {
			changed(f)
		}
	}
	for {
		select {
		case now := <-tick.C:
			report(now)
		case err := <-stopped:
			report(time.Now())
			end, syncErr := l.syncFiles()
			if syncErr == nil {
				syncErr = ended(end)
			}
			return errors.Join(err, syncErr, l.server.Close())
		}
	}
}

// End is the result of a landing.
type End struct {
	Files  int      `json:"files"`  // number of received files
	Bytes  int64    `json:"bytes"`  // bytes of the received files
	Open   []string `json:"open"`   // not complete
	Mounts []string `json:"mounts"` // hosts that did not unmount
}

// syncFiles writes all data to the medium, and returns the result.
func (l *Landing) syncFiles() (end End, err error) {
	dir := l.Facts.Export
	if err := syncFileSystem(dir); err != nil {
		return end, fault.New(fault.Internal, "sync %s: %w", dir, err).
			WithHint("compare the received files with their source before use; see dmesg for errors of the disk")
	}
	end.Mounts = []string{}
	end.Files, end.Bytes, end.Open = l.watch.Total()
	for _, m := range l.server.Mounts() {
		if host := m.Host.Unmap().String(); !slices.Contains(end.Mounts, host) {
			end.Mounts = append(end.Mounts, host)
		}
	}
	return end, nil
}

// syncFileSystem calls syncfs(2) on the file system of dir: data and names are then on the medium.
func syncFileSystem(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}
