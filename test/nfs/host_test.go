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

// Where servers of these tests listen. Each has an address of its own out of 127/8: what
// was just freed on 127.0.0.1 may be somebody else's the next moment.
const (
	nfsPort     = "2049"
	portmapPort = "11111"
)

// address is the server's address for a test, another one in each process.
func address(t *testing.T) string {
	t.Helper()
	h := fnv.New64a()
	fmt.Fprint(h, os.Getpid(), t.Name())
	rnd := generator(h.Sum64(), forAddress)
	return fmt.Sprintf("127.%d.%d.%d", 1+rnd.IntN(250), rnd.IntN(256), 1+rnd.IntN(250))
}

// quick are times of a client that does not wait longer than it must.
func quick() nfsclient.Times {
	return nfsclient.Times{
		Mount: patience, Silence: patience, GiveUp: patience, APD: patience, Heartbeat: 50 * time.Millisecond,
		HeartbeatTimeout: patience, Reconnect: 2 * time.Millisecond, Jukebox: 2 * time.Millisecond,
		LockUpdate: 100 * time.Millisecond, LockTimeout: patience, LockBreak: time.Millisecond,
	}
}

// esxi is a host that copies a disk by playing a program. It outlives the servers it
// writes to, and its mount is hard: what was not answered is sent again to the next one.
type esxi struct {
	*program
	cfg nfsclient.Config

	mu     sync.Mutex
	step   func() // called before each step of the copies that begin from now on
	ds     *nfsclient.Datastore
	copies []*copying
}

// copying is one copy under way.
type copying struct {
	name  string
	ended chan struct{} // closed when err is there
	err   error
}

func (h *esxi) mount(ctx context.Context, server, export string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ds != nil {
		return nil // as it was before the server died
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

// abandon ends the host without a word, and returns when all its copies ended.
func (h *esxi) abandon() {
	h.mu.Lock()
	ds := h.ds
	h.ds = nil
	h.mu.Unlock()
	if ds != nil {
		ds.Abandon()
	}
	for _, c := range h.all() {
		<-c.ended
	}
}

func (h *esxi) all() []*copying {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.copies
}

// begin starts a copy to a descriptor of the datastore.
func (h *esxi) begin(descriptor string) *copying {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &copying{name: descriptor, ended: make(chan struct{})}
	before, ds, step := h.copies, h.ds, h.step
	h.copies = append(before[:len(before):len(before)], c)
	go func() {
		defer close(c.ended)
		if c.err = h.copy(ds, descriptor, step); !errors.Is(c.err, nfsclient.ErrLocked) {
			return
		}
		for _, b := range before { // to a server that is gone: one's file had the same number
			<-b.ended
		}
		c.err = h.copy(ds, descriptor, step)
	}()
	return c
}

// copy plays the program on the flat file of a descriptor.
func (h *esxi) copy(ds *nfsclient.Datastore, descriptor string, step func()) (err error) {
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

// play does what the program says. Each of its rounds ends when all of it was answered.
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
			if err := w.WriteAt(write.bytes(), write.Off); err != nil {
				break // Close returns it
			}
		}
		if err := w.Close(); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	return nil
}

// at is an esxi as package landing sees it.
type at struct{ *esxi }

func (a at) MountNAS(ctx context.Context, _ inventory.MoRef, n esx.NAS) (string, bool, error) {
	return n.Name, true, a.mount(ctx, n.Server, n.Path)
}

func (a at) UnmountNAS(ctx context.Context, _ inventory.MoRef, _ esx.NAS) error {
	return a.unmount(ctx)
}

func (a at) CopyDisk(ctx context.Context, d esx.DiskCopy) error {
	c := a.begin(path.Clean(d.To.File))
	select {
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a at) HostAddresses(context.Context, inventory.MoRef) ([]netip.Addr, error) {
	return loopback, nil
}

// loopback is where hosts of these tests send from.
var loopback = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}

// SnapshotDisk is not asked for: nothing here runs.
func (a at) SnapshotDisk(context.Context, inventory.MoRef, int32) (inventory.Path, error) {
	return inventory.Path{}, errors.New("the host has no snapshot")
}
