// Package https pulls disks through ESXi's datastore file access: ranged GETs of the
// -flat.vmdk under /folder. Every ESXi and vCenter has it, and it needs no agent. It is fast
// only with the right number of connections and overlapping requests, which this package
// provides.
//
// # How a byte gets here
//
//	Transport.Transfer -> transport.Pull -> blockcopy.Copy -> Source.Hints().Stream
//	stream.Read -> exchange.Read -> tls.Conn -> stallConn.Read -> the socket
//
// There is no goroutine in between: the caller's Read decrypts directly into the caller's
// buffer. A pool shares few connections among all disks of one host. On each connection, a
// second request is sent while the first answer is being read, so that the host is never idle
// between two ranges.
//
// # What it promises
//
//   - HTTP/1.1 only. HTTP/2 uses a single TCP connection, which ESXi limits, and doubles the
//     cost of a byte.
//   - A connection that dies, stalls or ends early is replaced, and the stream continues at the
//     same byte. An answer for another range than requested is never used as data.
//   - The number of connections is determined at run time (see control), and reduced at once
//     when the host shows distress: /folder shares hostd with the host's management.
//   - Areas that the allocation map calls free are not read, after samples of them were read
//     and found zero (see package allocation). After one error a map is not used at all.
//
// # Limits
//
// It reads only files without a writer: disks of VMs that are powered off, without snapshots.
// Host logs in to the server.
//
// # Memory
//
// 544 KiB for each connection (8 by default, 16 at most), and 16 bytes for each run of
// allocated blocks in a disk's map.
package https

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/transport"
)

// Host is the part of a logged-in ESXi or vCenter that this package needs. Its methods may be called
// concurrently.
type Host interface {
	// Addr returns the host:port that serves /folder.
	Addr() string

	// TLS returns the configuration that accepts this host's certificate and no other.
	TLS() *tls.Config

	// FileURI returns the request URI of a datastore file, escaped as the server wants it.
	FileURI(datacenter string, p inventory.Path) (string, error)

	// Cookie returns the Cookie header of the session. It is called for every request, and is cheap unless
	// the session must be renewed: because it is old, or because the last value, stale, was refused.
	Cookie(ctx context.Context, stale string) (string, error)

	// ReadFile returns a small file, such as a descriptor. It fails if the file has more than limit bytes.
	ReadFile(ctx context.Context, datacenter string, p inventory.Path, limit int64) ([]byte, error)

	// DiskAtSnapshot returns a disk as it was at a snapshot.
	DiskAtSnapshot(ctx context.Context, snapshot inventory.MoRef, key int32) (*inventory.Disk, error)

	// Allocated describes r by the datastore's block map, in order and without gaps. It fails with
	// fault.Unsupported if there is no map.
	Allocated(ctx context.Context, vm, snapshot inventory.MoRef, key int32, r disk.Range) ([]disk.Extent, error)
}

// Options configure how a host is read. The zero value is right for production.
type Options struct {
	// MaxConnections bounds the connections to the host, for all disks together. Default 8, at most 16:
	// ESXi allows 128 for all its clients together (KB 383231), and 6 to 8 were enough for every datastore
	// that was measured. Migrations use at most 12; benchmarks use more to find the plateau.
	MaxConnections int

	// Stall is the longest time in which a connection may deliver nothing. Default 60 s.
	Stall time.Duration

	// Report, if set, is called with the statistics of a Source when it is closed.
	Report func(transport.Disk, Report)

	Log *slog.Logger // Log receives events of connections. Default discards them.

	// Now is the clock, which tests replace. Default time.Now.
	Now func() time.Time
	// Sleep waits for d, or returns ctx's error if that ends before.
	Sleep func(ctx context.Context, d time.Duration) error

	// Seed selects the samples of the allocation map. Default random.
	Seed uint64
}

const (
	defaultConnections = 8                // default of MaxConnections
	mostConnections    = 16               // highest MaxConnections
	defaultStall       = 60 * time.Second // default of Stall
)

// withDefaults returns o with defaults in place of zero fields.
func (o Options) withDefaults() Options {
	o.MaxConnections = min(cmp.Or(max(o.MaxConnections, 0), defaultConnections), mostConnections)
	o.Stall = cmp.Or(o.Stall, defaultStall)
	o.Seed = cmp.Or(o.Seed, rand.Uint64())
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Report == nil {
		o.Report = func(transport.Disk, Report) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = sleep.For
	}
	return o
}

// Transport pulls disks from one host. All its disks share one pool of connections, so there should be
// one Transport for each host.
type Transport struct {
	host      Host          // ESXi or vCenter
	opts      Options       // options with defaults
	pool      *pool         // connections to the host
	locations locationCache // files that Probe found
}

var _ transport.Transport = (*Transport)(nil)

// New returns a Transport for host. It connects when the first disk is read.
func New(host Host, opts Options) *Transport {
	opts = opts.withDefaults()
	return &Transport{host: host, opts: opts, pool: newPool(host, opts)}
}

// Name returns "https".
func (t *Transport) Name() string { return "https" }

// MaxConnections returns the bound on connections to the host.
func (t *Transport) MaxConnections() int { return t.opts.MaxConnections }

// Transfer copies the chunks that job's manifest lacks.
func (t *Transport) Transfer(ctx context.Context, job transport.Job) (blockcopy.Result, error) {
	return transport.Pull(ctx, func(ctx context.Context, d transport.Disk) (disk.Source, error) {
		return t.Open(ctx, d)
	}, job)
}

// Close closes the connections. No Source may be in use.
func (t *Transport) Close() error {
	t.pool.close()
	return nil
}
