// Package landing makes ESXi push disks: it serves an NFS datastore, and makes the host mount it
// and copy each disk to it, thin. This transport needs no library and works at the speed of the
// host's own disk code. The usual reason for slow copies over NFS, a server that syncs each write,
// does not exist here.
//
// # How a byte gets here
//
//	Transfer -> Copier.CopyDisk                             starts and follows the copy on the host
//	            nfs WRITE -> content -> writebehind.File    hashes the data while it is cached
//	                                    -> Target           writes it in large runs
//
// The -flat.vmdk that the host writes is a name without data: the bytes go directly into the
// target's image, raw or qcow2. Therefore nothing is moved or copied afterwards.
//
// # What is promised
//
// After a Transfer that returns nil, the manifest is complete: it lists the data that the host
// wrote, and zeros everywhere else. If a step fails, the host's copy fails too, or its further
// writes are discarded: names are used once, so the host's handles are stale. The host copies from
// the beginning each time; chunks that are durable already are not written again.
//
// A disk of a running VM is landed as it was at a snapshot, because the host may read files that
// /folder refuses. The Transfer fails unless the snapshot exists before and after the copy.
//
// The datastore is mounted with the first Transfer and unmounted by Close. It is recorded (package
// cleanup) from before it is mounted until it is unmounted, so that the next run can restore the
// source after a crash. Its name depends only on the folder and the address, so that the next
// Transport finds it.
//
// # Memory
//
// Options.Memory for the data of all disks, and in addition the memory of package nfs.
package landing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/writebehind"
)

// Host is the part of a logged-in ESXi or vCenter that this package needs.
type Host interface {
	// MountNAS mounts an export on a host. name is the datastore's name there, which differs if the export
	// is mounted already; mounted reports that this call mounted it.
	MountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) (name string, mounted bool, err error)
	// UnmountNAS unmounts an export. It fails with fault.Conflict while files are open.
	UnmountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) error
	// CopyDisk copies a disk to another datastore and waits for the end.
	CopyDisk(ctx context.Context, c esx.DiskCopy) error

	// SnapshotDisk returns the path of the descriptor of a disk at a snapshot.
	SnapshotDisk(ctx context.Context, snapshot inventory.MoRef, key int32) (inventory.Path, error)

	// HostAddresses returns the addresses from which a host may connect.
	HostAddresses(ctx context.Context, host inventory.MoRef) ([]netip.Addr, error)
}

// Options configure the landing. Dir is required; the rest has defaults.
type Options struct {
	// Dir is the folder of the export, with the names that hosts see. It contains no disks. The Transport
	// owns it and removes its content.
	Dir string

	// Advertise is the address of this machine that hosts mount. Default: the address on the route to the
	// host.
	Advertise netip.Addr

	// Ports are the addresses to serve at. Default port 2049, and 111 for the port mapper.
	Ports nfs.Ports

	// Allow contains addresses that may mount the export, besides those that the host reports: for hosts
	// that connect from another address.
	Allow []netip.Prefix

	// Memory bounds the data in memory of all disks together, in bytes. Default 1 GiB.
	Memory int64

	// Leftovers records each mount, as one of the ESXi or vCenter at Server. Nil records nothing.
	Leftovers *cleanup.Store
	Server    string // Server is the host:port of the ESXi or vCenter, for Leftovers.
	// Stays is called with the error of a mount that could not be removed and remains recorded. Nil makes
	// it an error of Close.
	Stays func(error)

	UnmountWait time.Duration                        // longest wait for files that the host has open; default a minute
	Stall       time.Duration                        // time after which a copy without progress is canceled; default an hour
	Hold        time.Duration                        // longest delay of a WRITE's reply for Job.Pace; default 5 s
	After       func(time.Duration) <-chan time.Time // clock, which tests replace; default time.After

	// CheckpointBytes is the number of written bytes after which a disk is synced. Default: that of
	// package writebehind.
	CheckpointBytes int64

	// Copier makes the host copy. Default API.
	Copier Copier

	Log *slog.Logger // events of mounts and connections; default discards
}

// default of Memory, in bytes
const defaultMemory = 1 << 30

// Transport lands disks. It is a transport.Transport and safe for concurrent use.
type Transport struct {
	host Host              // ESXi or vCenter
	opts Options           // options with defaults
	pool *writebehind.Pool // memory of all disks

	mu      sync.Mutex                    // held while a host mounts; guards the fields up to doubted
	server  *nfsServer                    // NFS server; nil before the first Transfer
	mounted map[inventory.MoRef]hostMount // datastore of each host
	doubted map[inventory.MoRef]bool      // hosts on which a copy failed: they may have lost the mount

	landing sync.Mutex          // guards disks; never held during I/O, because WRITEs of hosts wait for it
	disks   map[string]*content // disks that land, by the path of their data file in the export
}

// New returns a Transport for the disks of a host. It connects to nothing and serves nothing before the
// first Transfer.
func New(host Host, o Options) *Transport {
	o = o.withDefaults()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Copier == nil {
		o.Copier = API{host}
	}
	return &Transport{
		host: host, opts: o, pool: writebehind.NewPool(o.Memory),
		mounted: map[inventory.MoRef]hostMount{}, doubted: map[inventory.MoRef]bool{}, disks: map[string]*content{},
	}
}

// Name is part of transport.Transport.
func (t *Transport) Name() string { return "landing" }

// Supports is part of transport.DiskSupporter. Over SSH, the host copies the object behind the descriptor of a
// raw device mapping or a vSAN disk, which has no file to read.
func (t *Transport) Supports(code string) bool {
	c, ok := t.opts.Copier.(interface{ Objects() bool })
	return ok && c.Objects() && (code == "rdm" || code == "rdm-physical" || code == "vsan")
}

// Probe is part of transport.Transport. It does not test whether the host can reach this machine: the
// mount shows that.
func (t *Transport) Probe(ctx context.Context, d transport.Disk) (transport.Offer, error) {
	o := transport.Offer{Usable: true, Reason: "the host copies to a datastore that decamp serves", Streams: 2}
	if d.Snapshot == "" {
		return o, nil
	}
	from, err := t.sourcePath(ctx, d)
	if fault.Is(err, fault.NotFound) {
		return transport.Offer{Reason: fmt.Sprintf("%v; %s", err, fault.HintOf(err))}, nil
	}
	if err != nil {
		return transport.Offer{}, err
	}
	o.Running, o.Reason = true, fmt.Sprintf("the host copies %v, which does not change, to a datastore that decamp serves", from)
	return o, nil
}

// sourcePath returns the path of the descriptor that the host must copy.
func (t *Transport) sourcePath(ctx context.Context, d transport.Disk) (inventory.Path, error) {
	if d.Snapshot == "" {
		return d.Disk.Path, nil
	}
	return t.host.SnapshotDisk(ctx, d.Snapshot, d.Disk.Key)
}

// checkUnmoved fails unless a disk that was copied from path from is still frozen there. If the
// snapshot was removed during the copy, the base was written to.
func (t *Transport) checkUnmoved(ctx context.Context, d transport.Disk, from inventory.Path) error {
	now, err := t.sourcePath(ctx, d)
	switch {
	case fault.Is(err, fault.NotFound):
		return fault.New(fault.Conflict, "the snapshot was removed while its disk was copied: %w", err).
			WithHint("find the cause in the recent tasks of the VM, and run the command again")
	case err == nil && now != from:
		return fault.New(fault.Conflict, "the file of the disk at the snapshot changed from %v to %v", from, now).
			WithHint("the VM was relocated, or its snapshots changed, during the copy; run the command again")
	}
	return err
}

// Transfer is part of transport.Transport. It mounts the datastore if necessary and makes the host copy
// the disk to it.
func (t *Transport) Transfer(ctx context.Context, job transport.Job) (res blockcopy.Result, err error) {
	from, err := t.sourcePath(ctx, job.Disk)
	if err != nil {
		return res, err
	}
	datastore, err := t.ensureMounted(ctx, job.Disk.VM.Host)
	if err != nil {
		return res, err
	}
	l, err := t.addContent(ctx, job)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, t.removeContent(l)) }()
	err = t.runWatched(ctx, l, func(ctx context.Context, began func()) error {
		return t.opts.Copier.CopyDisk(ctx, job.Disk.VM.Host, esx.DiskCopy{
			Datacenter: job.Disk.VM.Datacenter,
			From:       from,
			To:         inventory.Path{Datastore: datastore, File: l.descriptor},
			Object:     job.Disk.Disk.Backing.IsObject(),
			Progress:   l.reportPercent,
		}, began)
	})
	if err != nil {
		t.doubtMount(job.Disk.VM.Host)
		return l.copyResult(), l.preferOwnError(err)
	}
	if err = t.checkUnmoved(ctx, job.Disk, from); err == nil {
		err = l.finishDisk(ctx)
	}
	return l.copyResult(), err
}

// ensureMounted mounts our datastore on the host, unless it is mounted, and returns its name there. The
// first call starts the server.
func (t *Transport) ensureMounted(ctx context.Context, host inventory.MoRef) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m, ok := t.mounted[host]; ok && !t.doubted[host] {
		return m.nas.Name, nil
	}
	from, err := t.host.HostAddresses(ctx, host)
	if err == nil && len(from) == 0 {
		err = fault.New(fault.Unreachable, "host %s has no address", host).WithHint("use --transport https")
	}
	if err != nil {
		return "", err
	}
	if t.server == nil {
		if t.server, err = t.startServer(ctx); err != nil {
			return "", err
		}
	}
	t.server.admitHosts(from)
	export, err := t.exportFor(from[0])
	if err != nil {
		return "", err
	}
	t.server.arrivals.reset()
	m, err := t.mountExport(ctx, host, export)
	if err != nil {
		return "", t.server.explainMountError(err, host, export.Server, from)
	}
	t.mounted[host] = m
	delete(t.doubted, host)
	return m.nas.Name, nil
}

// doubtMount makes the next Transfer request the mount again: a host that was off in between may have
// lost it.
func (t *Transport) doubtMount(host inventory.MoRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubted[host] = true
}

// Close unmounts the datastore from every host and then ends the server. Until then the server must
// answer, because hosts close their files.
func (t *Transport) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, m := range t.mounted {
		errs = append(errs, t.unmountHost(m))
	}
	clear(t.mounted)
	if t.server != nil {
		errs = append(errs, t.server.close())
		t.server = nil
	}
	return errors.Join(errs...)
}
