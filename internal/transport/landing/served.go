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

// served is the datastore while it is served.
type nfsServer struct {
	*nfs.Server
	ended    chan error
	log      *slog.Logger
	allow    []netip.Prefix // who may mount it besides the hosts of the run
	port     int            // of NFS
	mapped   bool           // the port mapper is ours, and not the system's rpcbind
	arrivals arrivals

	mu    sync.Mutex
	hosts map[netip.Addr]bool // who may mount it
}

// startServer starts the server. It outlives ctx: Close ends it.
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

// addPortHint adds what can be done here about a port that is taken.
func addPortHint(err error) error {
	if !fault.Is(err, fault.Conflict) {
		return err
	}
	return fault.New(fault.Conflict, "%w", err).
		WithHint("%s; or serve on another address of this machine, which has to be told to the host: "+
			"--landing-listen IP:2049 --landing-portmap IP:111 --advertise IP", fault.HintOf(err))
}

// countConnections has the witness see who comes.
func (s *nfsServer) countConnections(l *nfs.Listeners) {
	if tcp, ok := l.NFS.Addr().(*net.TCPAddr); ok {
		s.port = tcp.Port
	}
	l.NFS = &countingListener{l.NFS, &s.arrivals, &s.arrivals.nfs}
	if s.mapped = l.Portmap != nil; s.mapped {
		l.Portmap = &countingListener{l.Portmap, &s.arrivals, &s.arrivals.mapper}
	}
}

func (s *nfsServer) close() error {
	if err := s.Server.Close(); err != nil {
		return err
	}
	return <-s.ended
}

func (s *nfsServer) admitHosts(list []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, addr := range list {
		s.hosts[addr.Unmap()] = true
	}
}

func (s *nfsServer) isAdmitted(addr netip.Addr) bool {
	addr = addr.Unmap()
	if s.isHost(addr) || slices.ContainsFunc(s.allow, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return true
	}
	if s.arrivals.addRefused(addr) {
		s.log.Warn("refused who is no host of this run", "from", addr.String())
	}
	return false
}

func (s *nfsServer) isHost(addr netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hosts[addr]
}

// emptyDir makes Dir an empty folder: handles of what was in it are stale from now on.
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

// reportedSpace is the space that hosts are told of: the images are not in the export, and their
// place was looked at before.
func reportedSpace() (total, free int64, err error) { return 64 << 40, 64 << 40, nil }
