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

// A Host is the content of a mount. It must be safe for concurrent use.
type Host interface {
	// Datastores lists the datastores for the root folder, each below its datacenter.
	Datastores(ctx context.Context) ([]inventory.Datastore, error)

	// Stat returns type and size of a path; File "" is the root of the datastore.
	Stat(ctx context.Context, datacenter string, p inventory.Path) (inventory.File, error)

	// List returns the names in a folder.
	List(ctx context.Context, datacenter string, p inventory.Path) ([]inventory.File, error)

	// Open opens a file of size bytes.
	Open(ctx context.Context, datacenter string, p inventory.Path, size int64) (disk.Source, error)
}

// A Session is the part of a login that Remote needs.
type Session interface {
	Datastores(ctx context.Context) ([]inventory.Datastore, error) // Datastores lists the datastores.
	VMs(ctx context.Context) ([]inventory.VM, error)               // VMs lists the VMs with their disks.
	// Stat returns type and size of a path.
	Stat(ctx context.Context, datacenter string, p inventory.Path) (inventory.File, error)
	// List returns the names in a folder.
	List(ctx context.Context, datacenter string, p inventory.Path) ([]inventory.File, error)
}

// inventoryAge is the largest age of the list of VMs in which disks are searched.
const inventoryAge = 30 * time.Second

// A Remote is the Host of a session. It reads through the connections of a transport. It determines
// which files are disks of VMs, because an allocation map may exist for them.
type Remote struct {
	Session
	transport *https.Transport // transport to the same host
	log       *slog.Logger     // log for disks that are read without a map

	mu    sync.Mutex     // guards vms and asked; not held across requests
	vms   []inventory.VM // VMs when they were listed last
	asked time.Time      // time of the last list; zero if never
}

// NewRemote returns the Host of a session. t is a transport to the same host. log may be nil.
func NewRemote(s Session, t *https.Transport, log *slog.Logger) *Remote {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Remote{Session: s, transport: t, log: log}
}

// Open opens a disk with its allocation map, and any other file as plain bytes. It tries to read a disk
// that cannot be migrated as well (a snapshot, a running VM): some hosts serve the frozen base of a
// snapshot.
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

// flatSuffix is the end of the name of a disk's data file.
const flatSuffix = "-flat.vmdk"

// openDisk opens a file that is the data of a VM's disk. It returns nil if that is unknown or the disk
// cannot be opened with a map.
func (r *Remote) openDisk(ctx context.Context, datacenter string, p inventory.Path, size int64) disk.Source {
	vm, d := r.findDisk(ctx, datacenter, p)
	if d == nil {
		return nil
	}
	src, err := r.transport.Open(ctx, transport.Disk{VM: vm, Disk: d})
	if err != nil {
		r.log.Info("disk read without its allocation map", "file", p.String(), "err", err)
		return nil
	}
	if src.Path() != p || src.Size() != size {
		_ = src.Close() // always nil
		return nil
	}
	return src
}

// findDisk returns the disk whose data file is flat, by the descriptor in the same folder. It returns
// nil if there is none.
func (r *Remote) findDisk(ctx context.Context, datacenter string, flat inventory.Path) (*inventory.VM, *inventory.Disk) {
	descriptor := inventory.Path{Datastore: flat.Datastore, File: strings.TrimSuffix(flat.File, flatSuffix) + path.Ext(flat.File)}
	vms, err := r.listVMs(ctx)
	if err != nil {
		r.log.Info("VMs not listed, disks are read without their allocation maps", "err", err)
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

// listVMs returns the list of VMs, at most inventoryAge old.
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

// retryTransient calls ask until a busy or unreachable host answers, or ctx ends. It returns the last
// result.
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
