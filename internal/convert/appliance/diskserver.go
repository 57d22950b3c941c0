package appliance

import (
	"context"
	"net"
	"sync"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/nbd"
)

// A diskServer serves devices to a VM over NBD.
type diskServer struct {
	ctx    context.Context    // ends all connections
	cancel context.CancelFunc // ends ctx
	all    sync.WaitGroup     // goroutines that serve

	mu  sync.Mutex // protects err and all devices, because volumes may share an overlay
	err error      // first error of a device
}

// newDiskServer returns a diskServer without devices.
func newDiskServer() *diskServer {
	s := &diskServer{}
	s.ctx, s.cancel = context.WithCancel(context.Background()) // ended by closeAll, after the VM
	return s
}

// serve serves d on conn in a goroutine until the connection ends.
func (s *diskServer) serve(conn net.Conn, d convert.Device) {
	server := &nbd.Server{Exports: []nbd.Export{{Disk: &lockedDevice{d, s}}}}
	s.all.Go(func() {
		// The VM sees an I/O error if the server ends.
		if err := server.ServeConn(s.ctx, conn); err != nil {
			s.recordError(err)
		}
	})
}

// closeAll closes the connections and waits until the devices are unused.
func (s *diskServer) closeAll() {
	s.cancel()
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
// write only to the application that wrote. It implements nbd.Reader and nbd.Writer.
type lockedDevice struct {
	device convert.Device
	s      *diskServer // server that has the lock and records errors
}

// Size returns the size in bytes.
func (g *lockedDevice) Size() int64 { return g.device.Size() }

// ReadAt fills p from off.
func (g *lockedDevice) ReadAt(_ context.Context, p []byte, off int64) error {
	return g.transfer(g.device.ReadAt, p, off)
}

// WriteAt writes p at off.
func (g *lockedDevice) WriteAt(_ context.Context, p []byte, off int64) error {
	return g.transfer(g.device.WriteAt, p, off)
}

// Sync does nothing, because the devices are in memory.
func (g *lockedDevice) Sync(context.Context) error { return nil }

// Extents returns r as data.
func (g *lockedDevice) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r, Kind: disk.Data}}, nil
}

// transfer calls move with the lock held.
func (g *lockedDevice) transfer(move func([]byte, int64) (int, error), p []byte, off int64) error {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	_, err := move(p, off)
	if err != nil && g.s.err == nil {
		g.s.err = err
	}
	return err
}
