package nfs

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/nfsclient"
)

// Ports of the servers of these tests. Each server has a separate address out of 127/8, because
// another process may take a freed port of 127.0.0.1 at once.
const (
	nfsPort     = "2049"
	portmapPort = "11111"
)

// testAddress returns the address of a test's server. It differs between processes.
func testAddress(t *testing.T) string {
	t.Helper()
	h := fnv.New64a()
	fmt.Fprint(h, os.Getpid(), t.Name())
	rnd := newRand(h.Sum64(), forAddress)
	return fmt.Sprintf("127.%d.%d.%d", 1+rnd.IntN(250), rnd.IntN(256), 1+rnd.IntN(250))
}

// fastTimes returns client times with short intervals and long timeouts.
func fastTimes() nfsclient.Times {
	return nfsclient.Times{
		Mount: testTimeout, Silence: testTimeout, GiveUp: testTimeout, APD: testTimeout, Heartbeat: 50 * time.Millisecond,
		HeartbeatTimeout: testTimeout, Reconnect: 2 * time.Millisecond, Jukebox: 2 * time.Millisecond,
		LockUpdate: 100 * time.Millisecond, LockTimeout: testTimeout, LockBreak: time.Millisecond,
	}
}

// esxi is a host that copies a disk by playing a program. It outlives the servers that it writes to.
// Its mount is hard: it sends unanswered requests again to the next server.
type esxi struct {
	*program
	cfg nfsclient.Config

	mu     sync.Mutex
	step   func() // hook that new copies call before each step
	ds     *nfsclient.Datastore
	copies []*runningCopy
}

// runningCopy is one copy in progress.
type runningCopy struct {
	name  string
	ended chan struct{} // closed when the copy has ended
	err   error         // valid after ended is closed
}

// hasSucceeded reports whether the copy has ended without an error.
func (c *runningCopy) hasSucceeded() bool {
	select {
	case <-c.ended:
		return c.err == nil
	default:
		return false
	}
}

func (h *esxi) mount(ctx context.Context, server, export string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ds != nil {
		return nil // still mounted from before the server died
	}
	cfg := h.cfg
	cfg.Host, cfg.Path, cfg.PortmapAddr = server, export, server+":"+portmapPort
	ds, err := nfsclient.Mount(ctx, cfg)
	h.ds = ds
	return err
}

func (h *esxi) unmount(ctx context.Context) error {
	h.mu.Lock()
	ds := h.ds
	h.ds = nil
	h.mu.Unlock()
	if ds == nil {
		return nil
	}
	return ds.Unmount(ctx)
}

// abandon disconnects the host without an unmount, and returns when all its copies have ended.
func (h *esxi) abandon() {
	h.mu.Lock()
	ds := h.ds
	h.ds = nil
	h.mu.Unlock()
	if ds != nil {
		ds.Abandon()
	}
	for _, c := range h.allCopies() {
		<-c.ended
	}
}

func (h *esxi) allCopies() []*runningCopy {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.copies
}

// startCopy starts a copy to a descriptor of the datastore. If the file is locked, it waits for the
// earlier copies and tries once more.
func (h *esxi) startCopy(descriptor string) *runningCopy {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &runningCopy{name: descriptor, ended: make(chan struct{})}
	before, ds, step := h.copies, h.ds, h.step
	h.copies = append(before[:len(before):len(before)], c)
	go func() {
		defer close(c.ended)
		if c.err = h.copyDisk(ds, descriptor, step); !errors.Is(c.err, nfsclient.ErrLocked) {
			return
		}
		for _, b := range before { // copies to an earlier server, whose file may have the same number
			<-b.ended
		}
		c.err = h.copyDisk(ds, descriptor, step)
	}()
	return c
}

// copyDisk plays the program on the flat file of a descriptor.
func (h *esxi) copyDisk(ds *nfsclient.Datastore, descriptor string, step func()) (err error) {
	ctx := context.Background()
	flat := strings.TrimSuffix(descriptor, ".vmdk") + "-flat.vmdk"
	f, err := ds.Create(ctx, flat)
	if errors.Is(err, nfsclient.ErrLocked) {
		return errors.Join(err, ds.Remove(ctx, flat))
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(ctx)) }()
	return h.play(ctx, f, step)
}

// play runs the program on a file. A round ends when all its requests are answered.
func (p *program) play(ctx context.Context, f *nfsclient.File, step func()) error {
	for i, r := range p.rounds {
		step()
		if r.resize >= 0 {
			if err := f.Truncate(ctx, r.resize); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		w := f.NewWriter(ctx, p.inFlight)
		for _, write := range r.writes {
			step()
			if err := w.WriteAt(write.content(), write.Off); err != nil {
				break // Close returns it
			}
		}
		if err := w.Close(); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	return nil
}

// landingHost adapts an esxi to landing.Host.
type landingHost struct{ *esxi }

func (a landingHost) MountNAS(ctx context.Context, _ inventory.MoRef, n esx.NAS) (string, bool, error) {
	return n.Name, true, a.mount(ctx, n.Server, n.Path)
}

func (a landingHost) UnmountNAS(ctx context.Context, _ inventory.MoRef, _ esx.NAS) error {
	return a.unmount(ctx)
}

func (a landingHost) CopyDisk(ctx context.Context, d esx.DiskCopy) error {
	c := a.startCopy(path.Clean(d.To.File))
	select {
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a landingHost) HostAddresses(context.Context, inventory.MoRef) ([]netip.Addr, error) {
	return loopback, nil
}

// loopback is the address that the hosts of these tests send from.
var loopback = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}

// SnapshotDisk fails: no VM runs in these tests.
func (a landingHost) SnapshotDisk(context.Context, inventory.MoRef, int32) (inventory.Path, error) {
	return inventory.Path{}, errors.New("the host has no snapshot")
}
