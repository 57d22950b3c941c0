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
type served struct {
	*nfs.Server
	ended   chan error
	log     *slog.Logger
	allow   []netip.Prefix // who may mount it besides the hosts of the run
	port    int            // of NFS
	mapped  bool           // the port mapper is ours, and not the system's rpcbind
	witness witness

	mu   sync.Mutex
	from map[netip.Addr]bool // who may mount it
}

// serve starts the server. It outlives ctx: Close ends it.
func (t *Transport) serve(ctx context.Context) (*served, error) {
	if err := t.clean(); err != nil {
		return nil, err
	}
	s := &served{ended: make(chan error, 1), log: t.opts.Log, allow: t.opts.Allow, from: map[netip.Addr]bool{}}
	var err error
	s.Server, err = nfs.New(nfs.Options{
		Exports: []nfs.Export{{Path: exportPath(t.opts.Dir), Dir: t.opts.Dir, Open: t.open, Space: plenty}},
		Admit:   s.admits, Pool: t.pool, Log: t.opts.Log,
	})
	if err != nil {
		return nil, err
	}
	l, err := nfs.Listen(ctx, t.opts.Ports)
	if err != nil {
		return nil, errors.Join(elsewhere(err), s.Server.Close())
	}
	s.watch(l)
	go func() { s.ended <- s.Run(context.WithoutCancel(ctx), l) }()
	return s, nil
}

// elsewhere adds what can be done here about a port that is taken.
func elsewhere(err error) error {
	if !fault.Is(err, fault.Conflict) {
		return err
	}
	return fault.New(fault.Conflict, "%w", err).
		WithHint("%s; or serve on another address of this machine, which has to be told to the host: "+
			"--landing-listen IP:2049 --landing-portmap IP:111 --advertise IP", fault.HintOf(err))
}

// watch has the witness see who comes.
func (s *served) watch(l *nfs.Listeners) {
	if tcp, ok := l.NFS.Addr().(*net.TCPAddr); ok {
		s.port = tcp.Port
	}
	l.NFS = &door{l.NFS, &s.witness, &s.witness.nfs}
	if s.mapped = l.Portmap != nil; s.mapped {
		l.Portmap = &door{l.Portmap, &s.witness, &s.witness.mapper}
	}
}

func (s *served) close() error {
	if err := s.Server.Close(); err != nil {
		return err
	}
	return <-s.ended
}

func (s *served) admit(list []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, addr := range list {
		s.from[addr.Unmap()] = true
	}
}

func (s *served) admits(addr netip.Addr) bool {
	addr = addr.Unmap()
	if s.known(addr) || slices.ContainsFunc(s.allow, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return true
	}
	if s.witness.refuse(addr) {
		s.log.Warn("refused who is no host of this run", "from", addr.String())
	}
	return false
}

func (s *served) known(addr netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from[addr]
}

// clean makes Dir an empty folder: handles of what was in it are stale from now on.
func (t *Transport) clean() error {
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

// plenty is the space that hosts are told of: the images are not in the export, and their
// place was looked at before.
func plenty() (total, free int64, err error) { return 64 << 40, 64 << 40, nil }
