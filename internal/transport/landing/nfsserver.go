package landing

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs"
)

// nfsServer is the NFS server while it runs.
type nfsServer struct {
	*nfs.Server
	ended    chan error     // receives the error of Run
	log      *slog.Logger   // events of refused addresses
	allow    []netip.Prefix // Options.Allow: further addresses that may mount
	port     int            // TCP port of NFS
	mapped   bool           // our server is the port mapper, and not the system's rpcbind
	arrivals arrivals       // connections since the last mount began

	mu    sync.Mutex          // guards hosts
	hosts map[netip.Addr]bool // addresses of the run's hosts, which may mount
}

// startServer empties Dir and starts the server. The server continues after ctx; close ends it.
func (t *Transport) startServer(ctx context.Context) (*nfsServer, error) {
	if err := t.emptyDir(); err != nil {
		return nil, err
	}
	s := &nfsServer{ended: make(chan error, 1), log: t.opts.Log, allow: t.opts.Allow, hosts: map[netip.Addr]bool{}}
	var err error
	s.Server, err = nfs.New(nfs.Options{
		Exports: []nfs.Export{{Path: exportPath(t.opts.Dir), Dir: t.opts.Dir, Open: t.openContent, Space: reportedSpace}},
		Admit:   s.isAdmitted, Pool: t.pool, Log: t.opts.Log,
	})
	if err != nil {
		return nil, err
	}
	l, err := nfs.Listen(ctx, t.opts.Ports)
	if err != nil {
		return nil, errors.Join(addPortHint(err), s.Server.Close())
	}
	s.countConnections(l)
	go func() { s.ended <- s.Run(context.WithoutCancel(ctx), l) }()
	return s, nil
}

// addPortHint adds a remedy to the error of a port in use: another address of this machine.
func addPortHint(err error) error {
	if !fault.Is(err, fault.Conflict) {
		return err
	}
	return fault.New(fault.Conflict, "%w", err).
		WithHint("%s; or serve on another address of this machine: "+
			"--landing-listen IP:2049 --landing-portmap IP:111 --advertise IP", fault.HintOf(err))
}

// countConnections makes the listeners count their connections.
func (s *nfsServer) countConnections(l *nfs.Listeners) {
	if tcp, ok := l.NFS.Addr().(*net.TCPAddr); ok {
		s.port = tcp.Port
	}
	l.NFS = &countingListener{l.NFS, &s.arrivals, &s.arrivals.nfs}
	if s.mapped = l.Portmap != nil; s.mapped {
		l.Portmap = &countingListener{l.Portmap, &s.arrivals, &s.arrivals.mapper}
	}
}

// close ends the server and waits for its end.
func (s *nfsServer) close() error {
	if err := s.Server.Close(); err != nil {
		return err
	}
	return <-s.ended
}

// admitHosts admits the addresses of a host.
func (s *nfsServer) admitHosts(list []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, addr := range list {
		s.hosts[addr.Unmap()] = true
	}
}

// isAdmitted reports whether an address may connect. It logs each refused address once.
func (s *nfsServer) isAdmitted(addr netip.Addr) bool {
	addr = addr.Unmap()
	if s.isHost(addr) || slices.ContainsFunc(s.allow, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return true
	}
	if s.arrivals.addRefused(addr) {
		s.log.Warn("connection refused: not a host of this run", "from", addr.String())
	}
	return false
}

// isHost reports whether addr belongs to a host of the run.
func (s *nfsServer) isHost(addr netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hosts[addr]
}

// emptyDir creates Dir or removes its content. Handles of removed files are stale.
func (t *Transport) emptyDir() error {
	if err := os.MkdirAll(t.opts.Dir, 0o700); err != nil {
		return err
	}
	list, err := os.ReadDir(t.opts.Dir)
	for _, e := range list {
		if err := os.RemoveAll(filepath.Join(t.opts.Dir, e.Name())); err != nil {
			return err
		}
	}
	return err
}

// reportedSpace is nfs.Export.Space: 64 TiB, all free. The images are not in the export, and the space
// for them was checked before.
func reportedSpace() (total, free int64, err error) { return 64 << 40, 64 << 40, nil }
