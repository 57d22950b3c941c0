package export

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// Rates are what a server takes, in bytes a second.
type Rates struct {
	Stable   float64 // each write on the medium before its answer, as ESXi requests
	Unstable float64 // written, and committed once in the end
}

// Penalty is how many times slower stable writes are.
func (r Rates) Penalty() float64 { return r.Unstable / r.Stable }

// Procedures of NFSv3, and the stability of writes (RFC 1813 section 3.3.7).
const (
	nfsWrite  = 7
	nfsCreate = 8
	nfsRemove = 12
	nfsCommit = 21

	unstable = 0
	fileSync = 2
)

const (
	writeSize = 64 << 10 // write size of ESXi's vmkfstools, in bytes
	flights   = 8        // writes under way; ESXi was seen with 11 to 30

	// probeBytes is how much each half writes at most: as much as is free for sure where a
	// disk is to go.
	probeBytes = 256 << 20
)

// probe writes to a folder as a host would, half the time each way, and takes its file away.
func probe(ctx context.Context, portmap string, from netip.Addr, folder string, long time.Duration) (rates Rates, err error) {
	p := &prober{portmap: portmap, from: from, name: fmt.Sprintf(".decamp-probe-%d", os.Getpid())}
	defer p.close()
	if err := p.open(ctx, folder); err != nil {
		return Rates{}, err
	}
	defer p.leave(context.WithoutCancel(ctx))
	if rates.Unstable, err = p.half(ctx, unstable, long/2); err != nil {
		return Rates{}, err
	}
	rates.Stable, err = p.half(ctx, fileSync, long/2)
	return rates, err
}

// A prober is a client with one file.
type prober struct {
	portmap string
	from    netip.Addr
	name    string

	callers    []*caller // NFS connections
	root, file []byte    // handles
}

func (p *prober) close() {
	for _, c := range p.callers {
		c.close()
	}
}

// open mounts the folder and creates the file.
func (p *prober) open(ctx context.Context, folder string) error {
	if err := p.mount(ctx, folder); err != nil {
		return fmt.Errorf("mount %s: %w", folder, err)
	}
	for range flights {
		c, err := connect(ctx, p.portmap, p.from, nfsProgram, nfsVersion)
		if err != nil {
			return err
		}
		p.callers = append(p.callers, c)
	}
	d, err := p.callers[0].call(ctx, nfsCreate, func(e *xdr.Encoder) {
		e.Opaque(p.root)
		e.String(p.name)
		const unchecked, mode = 0, 0o600
		for _, v := range [...]uint32{unchecked, 1, mode, 0, 0, 0, 0, 0} { // only the mode is set
			e.Uint32(v)
		}
	})
	if err != nil {
		return err
	}
	if err := status(d); err != nil {
		return fmt.Errorf("create a file in %s: %w", folder, err)
	}
	if !d.Bool() {
		return fault.New(fault.Unsupported, "the server returns no handle of a new file")
	}
	p.file = d.Opaque(maxHandle)
	return d.Err()
}

const maxHandle = 64 // bytes of a handle (RFC 1813 section 2.4)

func (p *prober) mount(ctx context.Context, folder string) error {
	c, err := connect(ctx, p.portmap, p.from, mountProgram, mountVersion)
	if err != nil {
		return err
	}
	defer c.close()
	d, err := c.call(ctx, mountMnt, func(e *xdr.Encoder) { e.String(folder) })
	if err != nil {
		return err
	}
	if err := status(d); err != nil {
		return err
	}
	p.root = d.Opaque(maxHandle)
	if err := d.Err(); err != nil {
		return err
	}
	_, err = c.call(ctx, mountUmnt, func(e *xdr.Encoder) { e.String(folder) }) // the handle stays good
	return err
}

// leave removes the file. What it cannot remove the server's own errors tell of.
func (p *prober) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	_, _ = p.callers[0].call(ctx, nfsRemove, func(e *xdr.Encoder) {
		e.Opaque(p.root)
		e.String(p.name)
	})
}

// half writes for a time and commits, and returns the rate of both together.
func (p *prober) half(ctx context.Context, stable uint32, long time.Duration) (float64, error) {
	begin := time.Now()
	var next, done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range p.callers {
		g.Go(func() error {
			data := make([]byte, writeSize)
			for time.Since(begin) < long {
				off := next.Add(writeSize) - writeSize
				if off >= probeBytes {
					return nil
				}
				data[0], data[1] = byte(off>>16), byte(off>>24)|1 // no two are alike, nor zeros
				n, err := c.write(ctx, p.file, off, data, stable)
				if err != nil {
					return err
				}
				done.Add(int64(n))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	if err := p.commit(context.WithoutCancel(ctx)); err != nil {
		return 0, err
	}
	return float64(done.Load()) / time.Since(begin).Seconds(), nil
}

// write writes at off, and returns how much of it was taken.
func (c *caller) write(ctx context.Context, file []byte, off int64, data []byte, stable uint32) (int, error) {
	d, err := c.call(ctx, nfsWrite, func(e *xdr.Encoder) {
		e.Opaque(file)
		e.Uint64(uint64(off))
		e.Uint32(uint32(len(data)))
		e.Uint32(stable)
		e.Opaque(data)
	})
	if err != nil {
		return 0, err
	}
	if err := status(d); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	skipWcc(d)
	n := d.Uint32()
	return min(int(n), len(data)), d.Err()
}

func (p *prober) commit(ctx context.Context) error {
	c := p.callers[0]
	c.patience = time.Minute // a large amount may be unsynced
	defer func() { c.patience = callPatience }()
	d, err := c.call(ctx, nfsCommit, func(e *xdr.Encoder) {
		e.Opaque(p.file)
		e.Uint64(0)
		e.Uint32(0)
	})
	if err != nil {
		return err
	}
	return status(d)
}

// skipWcc passes attributes before and after (RFC 1813 section 2.6).
func skipWcc(d *xdr.Decoder) {
	const before, after = 24, 84 // bytes of wcc_attr and fattr3
	for _, n := range [...]int{before, after} {
		if d.Bool() {
			d.Read(make([]byte, n))
		}
	}
}

// status is the error that a result begins with, in the names of RFC 1813; nil for none.
func status(d *xdr.Decoder) error {
	s := d.Uint32()
	if err := d.Err(); err != nil || s == 0 {
		return err
	}
	kinds := map[uint32]fault.Kind{1: fault.Denied, 2: fault.NotFound, 13: fault.Denied, 28: fault.Full, 30: fault.Denied, 69: fault.Full}
	names := map[uint32]string{1: "not permitted", 2: "no such folder", 13: "access denied", 28: "no space", 30: "read-only", 69: "over quota"}
	if name, ok := names[s]; ok {
		return fault.New(kinds[s], "the server returned: %s", name)
	}
	return fault.New(fault.Internal, "the server returned NFS status %d", s)
}
