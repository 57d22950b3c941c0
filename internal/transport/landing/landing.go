// Package landing has ESXi push disks: it serves an NFS datastore, has the host mount it and
// copy each disk onto it, thin. It is the way out that needs no library, works at the speed
// of the host's own disk code, and is as slow as the export is wrong everywhere else: here
// there is no export to get wrong.
//
// # How a byte gets here
//
//	Transfer -> Copier.CopyDisk                        the host is asked, and followed
//	            nfs WRITE -> content -> writebehind.File    what it sends, hashed while hot
//	                                    -> Target      in large runs
//
// The -flat.vmdk that the host believes to write is a name without bytes: they go straight
// into the target's image, raw or qcow2. So nothing is adopted, moved or copied afterwards.
//
// # What is promised
//
// A Transfer that returns nil has a complete manifest: what the host wrote, and zeros where
// it wrote nothing. If anything fails in between, the host's copy fails too, or what it
// still writes goes nowhere: names are used once, so its handles are stale. The host copies
// from the beginning each time; chunks that are safe already are not written again.
//
// A disk of a running VM is landed as it was at a snapshot: the host may read what /folder
// refuses. The snapshot is there before and after, or the Transfer fails.
//
// The datastore is mounted with the first Transfer and unmounted by Close. It is on record
// (package leftover) from before it is mounted until it is unmounted, so that whoever comes
// next can put back what a crash left; and it has the same name for the same folder and
// address, so that the next Transport mounts it anew where nobody did.
//
// # Memory
//
// Options.Memory for everything that is held, and what package nfs takes besides.
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

// Host is what this package needs of a logged-in ESXi or vCenter.
type Host interface {
	MountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) (name string, mounted bool, err error)
	UnmountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) error
	CopyDisk(ctx context.Context, c esx.DiskCopy) error

	// SnapshotDisk returns the descriptor that holds a disk as it was at a snapshot.
	SnapshotDisk(ctx context.Context, snapshot inventory.MoRef, key int32) (inventory.Path, error)

	// HostAddresses returns the addresses that a host may send from.
	HostAddresses(ctx context.Context, host inventory.MoRef) ([]netip.Addr, error)
}

// Options say where hosts land. Dir is needed, the rest has defaults.
type Options struct {
	// Dir is a folder for the names that hosts see; it holds no disks. It belongs to the
	// Transport alone: what is in it is removed.
	Dir string

	// Advertise is the address of this machine that hosts are told. Default: the one on the
	// way to the host.
	Advertise netip.Addr

	// Ports are where it is served. Default 2049, and the port mapper's 111.
	Ports nfs.Ports

	// Allow are addresses that may mount it besides those that the host says it has: for
	// hosts that are seen from here by another.
	Allow []netip.Prefix

	// Memory bounds what is held of all disks together, in bytes. Default 1 GiB.
	Memory int64

	// Leftovers is where a mount is recorded, as one of the ESXi or vCenter at Server, which
	// is its host:port. Stays is told of one that could not be taken away and stays on
	// record; nil makes that an error of Close. A nil Leftovers records nothing.
	Leftovers *cleanup.Store
	Server    string
	Stays     func(error)

	UnmountWait time.Duration                        // for files that the host holds open; default a minute
	Stall       time.Duration                        // a copy that shows no sign of life for so long is ended; default an hour
	Hold        time.Duration                        // of the answer to a WRITE, for a Job's Pace, at most; default 5 s
	After       func(time.Duration) <-chan time.Time // default time.After

	// CheckpointBytes is how many bytes of a disk are written until they are made safe.
	// Default: that of package behind.
	CheckpointBytes int64

	// Copier is how the host is asked to copy. Default API.
	Copier Copier

	Log *slog.Logger // default discards
}

const defaultMemory = 1 << 30

// Transport lands disks. It is a transport.Transport.
type Transport struct {
	host Host
	opts Options
	pool *writebehind.Pool

	mu      sync.Mutex // held while a host mounts
	server  *nfsServer // nil before the first Transfer
	mounted map[inventory.MoRef]hostMount
	doubted map[inventory.MoRef]bool // a copy failed there: it may have lost the mount

	landing sync.Mutex          // never held across I/O: hosts that write wait for it
	disks   map[string]*content // by name in the export
}

// New returns the transport of a host. It starts nothing.
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

// Lifts is part of transport.Lifter. By SSH, the host copies what is behind the descriptor
// of a raw device mapping or a vSAN object, which has no file that could be read.
func (t *Transport) Lifts(code string) bool {
	c, ok := t.opts.Copier.(interface{ Objects() bool })
	return ok && c.Objects() && (code == "rdm" || code == "rdm-physical" || code == "vsan")
}

// Probe is part of transport.Transport. Whether the host can reach us shows when it mounts.
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
	o.Running, o.Reason = true, fmt.Sprintf("the host copies %v, which is frozen, to a datastore that decamp serves", from)
	return o, nil
}

// sourcePath is the descriptor that the host is to copy.
func (t *Transport) sourcePath(ctx context.Context, d transport.Disk) (inventory.Path, error) {
	if d.Snapshot == "" {
		return d.Disk.Path, nil
	}
	return t.host.SnapshotDisk(ctx, d.Snapshot, d.Disk.Key)
}

// checkUnmoved makes sure that a disk that was copied at a snapshot was frozen all the time: when
// the snapshot is removed, the base is written to.
func (t *Transport) checkUnmoved(ctx context.Context, d transport.Disk, from inventory.Path) error {
	now, err := t.sourcePath(ctx, d)
	switch {
	case fault.Is(err, fault.NotFound):
		return fault.New(fault.Conflict, "the snapshot was removed while its disk was copied: %w", err).
			WithHint("see the VM's recent tasks for who did so; take another and run the command again")
	case err == nil && now != from:
		return fault.New(fault.Conflict, "the disk at the snapshot was %v and is %v now", from, now).
			WithHint("the VM was moved or its snapshots changed while it was copied; run the command again")
	}
	return err
}

// Transfer is part of transport.Transport.
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

// ensureMounted makes sure that the host has our datastore, and returns its name there.
func (t *Transport) ensureMounted(ctx context.Context, host inventory.MoRef) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m, ok := t.mounted[host]; ok && !t.doubted[host] {
		return m.nas.Name, nil
	}
	from, err := t.host.HostAddresses(ctx, host)
	if err == nil && len(from) == 0 {
		err = fault.New(fault.Unreachable, "host %s has no address", host).WithHint("copy by --transport https")
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

// doubtMount has the next Transfer look whether the host still has the datastore: one that was
// off in between need not.
func (t *Transport) doubtMount(host inventory.MoRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubted[host] = true
}

// Close unmounts the datastore from every host and ends the server, which has to answer
// until then: hosts close their files.
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
