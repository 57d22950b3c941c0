package landing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs"
)

// served is the datastore while it is served.
type served struct {
	*nfs.Server
	ended chan error

	mu   sync.Mutex
	from map[netip.Addr]bool // who may mount it
}

// exportPath is what hosts mount.
const exportPath = "/decamp"

// serve starts the server. It outlives ctx: Close ends it.
func (t *Transport) serve(ctx context.Context) (*served, error) {
	if err := t.clean(); err != nil {
		return nil, err
	}
	s := &served{ended: make(chan error, 1), from: map[netip.Addr]bool{}}
	var err error
	s.Server, err = nfs.New(nfs.Options{
		Exports: []nfs.Export{{Path: exportPath, Dir: t.opts.Dir, Open: t.open, Space: plenty}},
		Admit:   s.admits, Pool: t.pool, Log: t.opts.Log,
	})
	if err != nil {
		return nil, err
	}
	l, err := nfs.Listen(ctx, t.opts.Ports)
	if err != nil {
		return nil, err
	}
	go func() { s.ended <- s.Run(context.WithoutCancel(ctx), l) }()
	return s, nil
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from[addr.Unmap()]
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

// export says what a host that sends from addr is to mount. The datastore's name depends on
// who serves what, so that it is found again after a crash, and two decamps keep apart.
func (t *Transport) export(addr netip.Addr) (esx.NAS, error) {
	us := t.opts.Advertise
	if !us.IsValid() {
		var err error
		if us, err = towards(addr); err != nil {
			return esx.NAS{}, err
		}
	}
	sum := sha256.Sum256([]byte(us.String() + " " + t.opts.Dir))
	return esx.NAS{Server: us.String(), Path: exportPath, Name: "decamp-" + hex.EncodeToString(sum[:4])}, nil
}

// towards returns the address of this machine on the way to addr. Nothing is sent:
// connecting a UDP socket only asks for the route.
func towards(addr netip.Addr) (netip.Addr, error) {
	c, err := net.Dial("udp", netip.AddrPortFrom(addr, 2049).String())
	if err != nil {
		return netip.Addr{}, fault.New(fault.Unreachable, "find the way to host %s: %w", addr, err).
			WithHint("say which address of this machine the host reaches: --advertise IP")
	}
	defer c.Close() // nothing was sent
	at, err := netip.ParseAddrPort(c.LocalAddr().String())
	return at.Addr().Unmap(), err
}
