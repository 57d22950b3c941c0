package mount

import (
	"context"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
)

// Host is what a mount shows. Its methods may be called concurrently.
type Host interface {
	// Datastores lists the datastores for the root folder, each below its datacenter.
	Datastores(ctx context.Context) ([]inventory.Datastore, error)

	// Stat returns what a path is; File "" is the datastore's root.
	Stat(ctx context.Context, datacenter string, p inventory.Path) (inventory.File, error)

	// List returns the names in a folder.
	List(ctx context.Context, datacenter string, p inventory.Path) ([]inventory.File, error)

	// Open opens a file of size bytes.
	Open(ctx context.Context, datacenter string, p inventory.Path, size int64) (disk.Source, error)
}

// Session is what Remote needs of a login.
type Session interface {
	Datastores(ctx context.Context) ([]inventory.Datastore, error)
	VMs(ctx context.Context) ([]inventory.VM, error)
	Stat(ctx context.Context, datacenter string, p inventory.Path) (inventory.File, error)
	List(ctx context.Context, datacenter string, p inventory.Path) ([]inventory.File, error)
}

// inventoryAge is how old the list of VMs may be that a disk is looked up in.
const inventoryAge = 30 * time.Second

// Remote is the Host of a session: it reads through the pool of a transport, and knows
// which files are disks of VMs, for which there may be an allocation map.
type Remote struct {
	Session
	transport *https.Transport
	log       *slog.Logger

	mu    sync.Mutex
	vms   []inventory.VM
	asked time.Time
}

// NewRemote returns the Host of a session and a transport of the same host. log may be nil.
func NewRemote(s Session, t *https.Transport, log *slog.Logger) *Remote {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Remote{Session: s, transport: t, log: log}
}

// Open opens a disk with its allocation map, anything else as plain bytes. What keeps a
// disk from being moved (a snapshot, a VM that runs) does not keep its file from being
// tried: some hosts do serve the frozen base of a snapshot.
func (r *Remote) Open(ctx context.Context, datacenter string, p inventory.Path, size int64) (disk.Source, error) {
	if strings.HasSuffix(p.File, flatSuffix) {
		if src := r.openDisk(ctx, datacenter, p, size); src != nil {
			return src, nil
		}
	}
	src, err := r.transport.OpenFile(datacenter, p, size)
	if err != nil {
		return nil, err
	}
	return src, nil
}

const flatSuffix = "-flat.vmdk"

// openDisk returns nil where the file is not known to be a disk's.
func (r *Remote) openDisk(ctx context.Context, datacenter string, p inventory.Path, size int64) disk.Source {
	vm, d := r.findDisk(ctx, datacenter, p)
	if d == nil {
		return nil
	}
	src, err := r.transport.Open(ctx, transport.Disk{VM: vm, Disk: d})
	if err != nil {
		r.log.Info("a disk is read without its map", "file", p.String(), "err", err)
		return nil
	}
	if src.Path() != p || src.Size() != size {
		_ = src.Close() // always nil
		return nil
	}
	return src
}

// findDisk returns the disk whose descriptor stands beside the flat file.
func (r *Remote) findDisk(ctx context.Context, datacenter string, flat inventory.Path) (*inventory.VM, *inventory.Disk) {
	descriptor := inventory.Path{Datastore: flat.Datastore, File: strings.TrimSuffix(flat.File, flatSuffix) + path.Ext(flat.File)}
	vms, err := r.listVMs(ctx)
	if err != nil {
		r.log.Info("the VMs cannot be listed, disks are read without their maps", "err", err)
		return nil, nil
	}
	for i := range vms {
		vm := &vms[i]
		for j := range vm.Disks {
			if vm.Datacenter == datacenter && vm.Disks[j].Path == descriptor {
				return vm, &vm.Disks[j]
			}
		}
	}
	return nil, nil
}

// listVMs lists the VMs, not more often than they change much.
func (r *Remote) listVMs(ctx context.Context) ([]inventory.VM, error) {
	r.mu.Lock()
	vms, asked := r.vms, r.asked
	r.mu.Unlock()
	if !asked.IsZero() && time.Since(asked) < inventoryAge {
		return vms, nil
	}
	vms, err := r.VMs(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vms, r.asked = vms, time.Now()
	return vms, nil
}

// retryTransient repeats a question that a busy host did not answer, until ctx ends.
func retryTransient[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		v, err := ask()
		if err == nil || !fault.Is(err, fault.Transient) && !fault.Is(err, fault.Unreachable) {
			return v, err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return v, err
		}
	}
}
