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

// Rates contains the write rates of a server, in bytes per second.
type Rates struct {
	Stable   float64 // rate if each write is on the medium before the reply, as ESXi requests
	Unstable float64 // rate with one COMMIT at the end
}

// Penalty returns the factor by which stable writes are slower.
func (r Rates) Penalty() float64 { return r.Unstable / r.Stable }

// Procedures of NFSv3, and the stability of writes (RFC 1813 section 3.3.7).
const (
	nfsWrite  = 7  // procedure WRITE
	nfsCreate = 8  // procedure CREATE
	nfsRemove = 12 // procedure REMOVE
	nfsCommit = 21 // procedure COMMIT

	unstable = 0 // stability UNSTABLE of WRITE
	fileSync = 2 // stability FILE_SYNC of WRITE
)

const (
	writeSize        = 64 << 10 // write size of ESXi's vmkfstools, in bytes
	concurrentWrites = 8        // number of concurrent writes; ESXi sends 11 to 30

	// probeBytes limits the amount of data of each half, in bytes. A folder for disks
	// has that much free space.
	probeBytes = 256 << 20
)

// measureRates writes a file to a folder in the way of an ESXi host, and removes it. It
// spends half of the time on stable and half on unstable writes. from is the local
// address.
func measureRates(ctx context.Context, portmap string, from netip.Addr, folder string, long time.Duration) (rates Rates, err error) {
	p := &prober{portmap: portmap, from: from, name: fmt.Sprintf(".decamp-probe-%d", os.Getpid())}
	defer p.close()
	if err := p.createFile(ctx, folder); err != nil {
		return Rates{}, err
	}
	defer p.removeFile(context.WithoutCancel(ctx))
	if rates.Unstable, err = p.measureRate(ctx, unstable, long/2); err != nil {
		return Rates{}, err
	}
	rates.Stable, err = p.measureRate(ctx, fileSync, long/2)
	return rates, err
}

// A prober is an NFS client with one file.
type prober struct {
	portmap string     // host:port of the port mapper
	from    netip.Addr // local address
	name    string     // name of the file

	callers    []*caller // NFS connections, one per concurrent write
	root, file []byte    // handles of the folder and of the file
}

// close closes all connections.
func (p *prober) close() {
	for _, c := range p.callers {
		c.close()
	}
}

// createFile mounts the folder, opens the connections and creates the file.
func (p *prober) createFile(ctx context.Context, folder string) error {
	if err := p.mountFolder(ctx, folder); err != nil {
		return fmt.Errorf("mount %s: %w", folder, err)
	}
	for range concurrentWrites {
		c, err := connectTo(ctx, p.portmap, p.from, nfsProgram, nfsVersion)
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
	if err := statusError(d); err != nil {
		return fmt.Errorf("create a file in %s: %w", folder, err)
	}
	if !d.Bool() {
		return fault.New(fault.Unsupported, "the server returned no handle of the new file")
	}
	p.file = d.Opaque(maxHandle)
	return d.Err()
}

const maxHandle = 64 // bytes of a handle (RFC 1813 section 2.4)

// mountFolder requests the handle of the folder. The handle remains valid after the
// UMNT call.
func (p *prober) mountFolder(ctx context.Context, folder string) error {
	c, err := connectTo(ctx, p.portmap, p.from, mountProgram, mountVersion)
	if err != nil {
		return err
	}
	defer c.close()
	d, err := c.call(ctx, mountMnt, func(e *xdr.Encoder) { e.String(folder) })
	if err != nil {
		return err
	}
	if err := statusError(d); err != nil {
		return err
	}
	p.root = d.Opaque(maxHandle)
	if err := d.Err(); err != nil {
		return err
	}
	_, err = c.call(ctx, mountUmnt, func(e *xdr.Encoder) { e.String(folder) }) // the handle stays good
	return err
}

// removeFile removes the file from the folder. It ignores errors, and waits for at most
// callPatience.
func (p *prober) removeFile(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	_, _ = p.callers[0].call(ctx, nfsRemove, func(e *xdr.Encoder) {
		e.Opaque(p.root)
		e.String(p.name)
	})
}

// measureRate writes for a time, commits, and returns the rate in bytes per second,
// including the commit. The blocks are not zeros and differ from each other, so that
// the server cannot deduplicate them.
func (p *prober) measureRate(ctx context.Context, stable uint32, long time.Duration) (float64, error) {
	begin := time.Now()
	var next, done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range p.callers {
		g.Go(func() error {
			data := make([]byte, writeSize)
			for time.Since(begin) < long {
				// Each connection reserves the next block of the file.
				off := next.Add(writeSize) - writeSize
				if off >= probeBytes {
					return nil
				}
				data[0], data[1] = byte(off>>16), byte(off>>24)|1 // no two are alike, nor zeros
				n, err := c.writeAt(ctx, p.file, off, data, stable)
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
	if err := p.commitFile(context.WithoutCancel(ctx)); err != nil {
		return 0, err
	}
	return float64(done.Load()) / time.Since(begin).Seconds(), nil
}

// writeAt writes data at off, and returns how many bytes the server accepted.
func (c *caller) writeAt(ctx context.Context, file []byte, off int64, data []byte, stable uint32) (int, error) {
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
	if err := statusError(d); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	skipWcc(d)
	n := d.Uint32()
	return min(int(n), len(data)), d.Err()
}

// commitFile makes all data durable with COMMIT. It may take up to a minute.
func (p *prober) commitFile(ctx context.Context) error {
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
	return statusError(d)
}

// skipWcc skips the attributes before and after an operation (wcc_data, RFC 1813
// section 2.6).
func skipWcc(d *xdr.Decoder) {
	const before, after = 24, 84 // bytes of wcc_attr and fattr3
	for _, n := range [...]int{before, after} {
		if d.Bool() {
			d.Read(make([]byte, n))
		}
	}
}

// statusError decodes the status of a result and returns its error, or nil for NFS3_OK.
func statusError(d *xdr.Decoder) error {
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
