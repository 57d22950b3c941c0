// Package https pulls disks through ESXi's datastore file access: ranged GETs of the
// -flat.vmdk under /folder. It is the way out that every ESXi and vCenter has, needs no
// agent, and is fast only if one does it right; this package is about that.
//
// # How a byte gets here
//
//	Transport.Transfer -> transport.Pull -> blockcopy.Copy -> Source.Hints().Stream
//	stream.Read -> exchange.Read -> tls.Conn -> stallConn.Read -> the socket
//
// There is no goroutine in between: the caller's Read decrypts straight into the
// caller's buffer. A pool shares few connections among all disks of one host; on each,
// a second request is written while the first answer is still being read, so the host
// is never idle between two ranges.
//
// # What it promises
//
//   - HTTP/1.1 only. HTTP/2 puts everything on one TCP connection, which is where
//     ESXi's limit is, and doubles the cost of a byte.
//   - A connection that dies, stalls or ends early is replaced; the stream goes on at its
//     byte. An answer that is not exactly the range asked for is never taken for data.
//   - The number of connections is found at run time (see control) and cut at once when
//     the host shows distress: /folder shares hostd with the host's management.
//   - Areas that the allocation map calls free are not read, after a sample of them was
//     read and found zero (see allocation). A map that lies once is not used at all.
//
// # What it does not do
//
// It reads files nobody writes: VMs that are powered off, without snapshots. It does not
// log in; Host does.
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

// Host is what this package needs of a logged-in ESXi or vCenter. Its methods may be
// called concurrently.
type Host interface {
	// Addr returns the host:port that serves /folder.
	Addr() string

	// TLS returns the configuration that accepts this host's certificate and no other.
	TLS() *tls.Config

	// FileURI returns the request URI of a datastore file, escaped as the server wants it.
	FileURI(datacenter string, p inventory.Path) (string, error)

	// Cookie returns the Cookie header of the session. It is called for every request and
	// cheap unless the session must be renewed: because it is old, or because stale, the
	// value used so far, was refused.
	Cookie(ctx context.Context, stale string) (string, error)

	// ReadFile returns a small file, such as a descriptor, of at most limit bytes.
	ReadFile(ctx context.Context, datacenter string, p inventory.Path, limit int64) ([]byte, error)

	// FrozenDisk returns a disk as it was at a snapshot.
	FrozenDisk(ctx context.Context, snapshot inventory.MoRef, key int32) (*inventory.Disk, error)

	// Allocated describes r, in order and without gaps, by the datastore's block map. It is
	// fault.Unsupported where there is none.
	Allocated(ctx context.Context, vm, snapshot inventory.MoRef, key int32, r disk.Range) ([]disk.Extent, error)
}

// Options change how a host is read. The zero value is right for production.
type Options struct {
	// MaxConnections bounds the connections to the host, over all disks. Default 8, at most
	// 16: ESXi allows 128 for all its clients together (KB 383231), and 6 to 8 were enough
	// to fill every datastore measured. What moves VMs asks for 12 at most; benchmarks look
	// beyond the plateau.
	MaxConnections int

	// Stall is how long a connection may deliver nothing before it is given up. Default 60 s.
	Stall time.Duration

	// Report, if set, is told what a Source learned about its disk when it is closed.
	Report func(transport.Disk, Report)

	Log *slog.Logger // default discards

	// Now and Sleep are the clock; tests replace it. Sleep returns early with ctx's error.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error

	// Seed chooses where the allocation map is sampled. Default random.
	Seed uint64
}

const (
	defaultConnections = 8
	mostConnections    = 16
	defaultStall       = 60 * time.Second
)

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

// Transport pulls disks from one host. All its disks share one pool of connections, so
// there should be one Transport for each host.
type Transport struct {
	host      Host
	opts      Options
	pool      *pool
	locations locationCache
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

// Transfer copies what job's manifest lacks.
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
