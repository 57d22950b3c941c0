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

// A diskServer serves devices to a VM over NBD.
type diskServer struct {
	conns []net.Conn     // our ends of the connections
	all   sync.WaitGroup // goroutines that serve

	mu  sync.Mutex // protects err and all devices, because volumes may share an overlay
	err error      // first error of a device
}

// serve serves d on conn in a goroutine until the connection ends.
func (s *diskServer) serve(conn net.Conn, d convert.Device) {
	s.conns = append(s.conns, conn)
	s.all.Go(func() {
		// The VM sees an I/O error if the server ends.
		defer conn.Close()
		if err := nbd.Serve(conn, &lockedDevice{d, s}); err != nil && !isDisconnect(err) {
			s.recordError(err)
		}
	})
}

// isDisconnect reports whether the connection has ended, which is normal when the VM is killed.
func isDisconnect(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) || errors.Is(err, io.ErrUnexpectedEOF)
}

// closeAll closes the connections and waits until the devices are unused.
func (s *diskServer) closeAll() {
	for _, c := range s.conns {
		_ = c.Close() // fails if it has ended
	}
	s.all.Wait()
}

// recordError stores the first error.
func (s *diskServer) recordError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// firstError returns the first error of a device, or nil.
func (s *diskServer) firstError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// A lockedDevice allows one operation at a time. It records errors, because the kernel reports a lost
// write only to the application that wrote.
type lockedDevice struct {
	convert.Device
	s *diskServer // server that has the lock and records errors
}

// ReadAt implements io.ReaderAt.
func (g *lockedDevice) ReadAt(p []byte, off int64) (int, error) {
	return g.transfer(g.Device.ReadAt, p, off)
}

// WriteAt implements io.WriterAt.
func (g *lockedDevice) WriteAt(p []byte, off int64) (int, error) {
	return g.transfer(g.Device.WriteAt, p, off)
}

// transfer calls move with the lock held.
func (g *lockedDevice) transfer(move func([]byte, int64) (int, error), p []byte, off int64) (int, error) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	n, err := move(p, off)
	if err != nil && g.s.err == nil {
		g.s.err = err
	}
	return n, err
}
