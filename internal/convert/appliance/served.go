package appliance

import (
	"errors"
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/nbd"
)

// served are the disks that are served to a VM.
type served struct {
	conns []net.Conn
	all   sync.WaitGroup

	mu     sync.Mutex // volumes share overlays, which are for one at a time
	failed error      // the first, of a disk
}

func (s *served) serve(conn net.Conn, d convert.Device) {
	s.conns = append(s.conns, conn)
	s.all.Go(func() {
		defer conn.Close()
		if err := nbd.Serve(conn, &guarded{d, s}); err != nil && !hungUp(err) {
			s.note(err)
		}
	})
}

// hungUp reports whether one of the two ended, as both do without a word when the VM is killed.
func hungUp(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) || errors.Is(err, io.ErrUnexpectedEOF)
}

// wait closes the connections, and returns when the devices are unused.
func (s *served) wait() {
	for _, c := range s.conns {
		_ = c.Close() // fails if it has ended
	}
	s.all.Wait()
}

func (s *served) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
}

func (s *served) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// guarded is a device with one user at a time. It records its errors: the kernel reports a lost write
// only to the application that wrote.
type guarded struct {
	convert.Device
	s *served
}

func (g *guarded) ReadAt(p []byte, off int64) (int, error) { return g.one(g.Device.ReadAt, p, off) }

func (g *guarded) WriteAt(p []byte, off int64) (int, error) { return g.one(g.Device.WriteAt, p, off) }

func (g *guarded) one(move func([]byte, int64) (int, error), p []byte, off int64) (int, error) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	n, err := move(p, off)
	if err != nil && g.s.failed == nil {
		g.s.failed = err
	}
	return n, err
}
