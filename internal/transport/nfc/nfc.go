// Package nfc pulls disks over NFC from port 902 of an ESXi host. It is the only pull transport
// that works for every disk that the host can read, and for the frozen disks of a running VM.
//
// # How a byte gets here
//
//	Transport.Transfer -> transport.Pull -> blockcopy.Copy -> Source.ReadAt
//	Source.ReadAt -> handles.claimHandle -> internal/nfc.Disk.ReadAs -> the socket
//
// A host serves one handle (one session on one disk) at about 142 MB/s, for any size of the reads
// (CDI 3752). Ten handles together got 505 MB/s from a host of 7.0.3. Therefore a disk is opened
// several times, and each request uses the handle with the fewest reads.
//
// # What it promises
//
//   - A session that breaks, stalls or is refused is replaced. The new ticket is for the VM's
//     current host. Interrupted reads are repeated.
//   - All disks of a Transport together stay within the NFC memory of each ESXi host: 48 MB
//     up to 7.0, 96 MB from 8 on, less a reserve for other clients. If there are many disks, each
//     closes handles until all have one.
//   - Areas that the host's map calls free are not read, after samples of them were read and
//     found zero (package allocation).
//   - Compression is used if measurements of the disk's first reads show that it helps.
//
// # Limits
//
// The caller takes the snapshots. Encrypted disks are refused, because it is not known how hosts
// serve them.
//
// # Memory
//
// On this machine 256 KiB for each handle, 4 handles for each disk, and one fragment (slightly
// more than 1 MiB) with compression; 16 bytes for each run of allocated blocks in a disk's map.
package nfc

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/transport"
)

// Host is the part of a logged-in ESXi or vCenter that this package needs. Its methods may be called
// concurrently.
type Host interface {
	// Addr returns the host:port of the API, for tickets without a host.
	Addr() string

	// NFCTicket returns a ticket for one connection to the disks of a VM.
	NFCTicket(ctx context.Context, vm inventory.MoRef) (nfc.Ticket, error)

	// DiskAtSnapshot returns a disk as it was at a snapshot.
	DiskAtSnapshot(ctx context.Context, snapshot inventory.MoRef, key int32) (*inventory.Disk, error)

	// VMHost returns the ESXi host that has the VM now.
	VMHost(ctx context.Context, vm inventory.MoRef) (inventory.MoRef, error)

	// HostVersion returns an ESXi host's product version, such as "8.0.2".
	HostVersion(ctx context.Context, host inventory.MoRef) (string, error)

	// VMkernelNICs returns an ESXi host's VMkernel interfaces.
	VMkernelNICs(ctx context.Context, host inventory.MoRef) ([]inventory.VMkernelNIC, error)

	// Allocated describes r by change tracking, in order and without gaps. It fails with fault.Unsupported
	// if change tracking is not available.
	Allocated(ctx context.Context, vm, snapshot inventory.MoRef, key int32, r disk.Range) ([]disk.Extent, error)
}

// Options configure how hosts are read. The zero value is right for production.
type Options struct {
	// Handles is the number of sessions that read one disk concurrently. Default 4, which use all the
	// bandwidth of a host; at most 16.
	Handles int

	// Buffers are requested in each session. Default 4 of 1 MiB for a VM that is off (504.93 against
	// 347.83 MB/s in the forklift documentation's test with ten VMs), and the host's default for one that
	// runs: larger ones are recommended for cold migration only.
	Buffers nfc.Buffers

	// Network selects the VMkernel interface to read from: vmk2, an address, a subnet or a port group.
	// Default: the ticket's address, else an interface tagged vSphereBackupNFC that answers, else the
	// host's address.
	Network string

	// Wire selects the encryption of the data. Default nfc.TLS.
	Wire nfc.Wire

	// Memory bounds the NFC memory of each host that is used, in bytes. Default: by the host's version.
	Memory int64

	// Compressions may be used. The first one is used until a measurement shows that another is better.
	// Default Stored, SkipZ, FastLZ.
	Compressions []nfc.Compression

	// Stall is the longest time in which a session may deliver nothing. Default 60 s.
	Stall time.Duration

	// OpenRetries limits the retries of the opening of a disk, for a user who waits for it. Default: as many as
	// of a read, which take minutes.
	OpenRetries int

	// Report, if set, is called with the statistics of a disk when it is closed.
	Report func(transport.Disk, Report)

	// Chosen, if set, is called once for each address that disks are read from, with the reason for it:
	// "10.9.0.7:902 (vmk1, tagged for backup traffic)". host is the host of the VM in the inventory.
	Chosen func(host inventory.MoRef, where string)

	Log *slog.Logger // Log receives events of handles. Default discards them.

	// Dial connects to a host:port. Tests replace it, and the clock below.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	Now  func() time.Time // Now is the clock. Default time.Now.
	// Sleep waits for d, or returns ctx's error if that ends before.
	Sleep func(ctx context.Context, d time.Duration) error

	// Seed selects the samples of the allocation map. Default random.
	Seed uint64
}

const (
	defaultHandles = 4                // default of Handles
	MostHandles    = 16               // highest number of Handles
	defaultStall   = 60 * time.Second // default of Stall
	dialTimeout    = 15 * time.Second // limit of the default Dial
)

// withDefaults returns o with defaults in place of zero fields.
func (o Options) withDefaults() Options {
	o.Handles = min(cmp.Or(max(o.Handles, 0), defaultHandles), MostHandles)
	o.Stall = cmp.Or(o.Stall, defaultStall)
	o.Seed = cmp.Or(o.Seed, rand.Uint64())
	if o.Compressions == nil {
		o.Compressions = []nfc.Compression{nfc.Stored, nfc.SkipZ, nfc.FastLZ}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Report == nil {
		o.Report = func(transport.Disk, Report) {}
	}
	if o.Chosen == nil {
		o.Chosen = func(inventory.MoRef, string) {}
	}
	if o.Dial == nil {
		o.Dial = dialTCP
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = sleep.For
	}
	return o
}

// dialTCP is the default Dial.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", addr)
}

// Transport pulls disks from the ESXi hosts of one API session. Its disks share the resources of the
// hosts, so there should be one Transport for each ESXi or vCenter.
type Transport struct {
	host Host    // ESXi or vCenter
	opts Options // options with defaults

	mu                sync.Mutex                // guards the fields below
	esxis             map[inventory.MoRef]*esxi // ESXi hosts that were queried
	reportedAddresses map[string]bool           // addresses passed to Options.Chosen
}

var _ transport.Transport = (*Transport)(nil)

// New returns a Transport for host. It connects when the first disk is opened.
func New(host Host, opts Options) *Transport {
	return &Transport{host: host, opts: opts.withDefaults(), esxis: map[inventory.MoRef]*esxi{}, reportedAddresses: map[string]bool{}}
}

// reportAddress calls Options.Chosen for an address, once.
func (t *Transport) reportAddress(host inventory.MoRef, where string) {
	t.mu.Lock()
	reported := t.reportedAddresses[where]
	t.reportedAddresses[where] = true
	t.mu.Unlock()
	if !reported {
		t.opts.Chosen(host, where)
	}
}

// Name returns "nfc".
func (t *Transport) Name() string { return "nfc" }

// Transfer copies the chunks that job's manifest lacks.
func (t *Transport) Transfer(ctx context.Context, job transport.Job) (blockcopy.Result, error) {
	return transport.Pull(ctx, func(ctx context.Context, d transport.Disk) (disk.Source, error) {
		src, err := t.Open(ctx, d)
		if err != nil {
			return nil, err // not a nil *Source in an interface
		}
		return src, nil
	}, job)
}

// Close does nothing: each Source closes its sessions.
func (t *Transport) Close() error { return nil }
