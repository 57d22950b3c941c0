package nfc

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// Disk is one open disk, on a separate session. After the session ended, every call fails: the caller
// opens the disk again. It is safe for concurrent use, except Close.
type Disk struct {
	session *session // connection to the host
	opts    Options  // options with defaults
	path    string   // datastore path of the descriptor, for errors
	handle  uint64   // number of the open file on the host
	size    int64    // capacity in bytes

	// room contains a token for each request under way, Options.Depth at most.
	room chan struct{}
}

var _ disk.Source = (*Disk)(nil)

// Open uses the ticket up and opens the disk whose descriptor has that datastore path, such as
// "[datastore1] web/web.vmdk". The host follows a chain of snapshots itself. ctx bounds only the
// opening. The caller closes the Disk.
func Open(ctx context.Context, t Ticket, path string, o Options) (*Disk, error) {
	o = o.withDefaults()
	if err := t.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Setup)
	defer cancel()
	s, err := setUp(ctx, t, o)
	if err != nil {
		return nil, err
	}
	d := &Disk{session: s, opts: o, path: path, room: make(chan struct{}, o.Depth)}
	stop := context.AfterFunc(ctx, func() { s.failSession(errReadCanceled) })
	err = d.openFile()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.failSession(errClosed)
		if errors.Is(ctx.Err(), context.Canceled) {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return d, nil
}

// openFile opens the file on the session, and sets handle and size.
func (d *Disk) openFile() error {
	payload, trailer := openFileRequest(d.path)
	reply, err := d.session.call(&op{kind: frameOpenFile}, payload, trailer)
	if r := (*Refusal)(nil); errors.As(err, &r) {
		return refusedOpen(r)
	}
	if err != nil {
		return err
	}
	o, err := parseOpened(reply.payload)
	d.handle, d.size = o.handle, o.capacity
	return err
}

// errReadCanceled ends a session when a read on it is canceled: the answer is still on its way, into a
// buffer that the caller may use again. For other readers of the session the error is transient.
var errReadCanceled = fault.New(fault.Transient, "another read on the same session was canceled")

// Addr returns the host:port of the host.
func (d *Disk) Addr() string { return d.session.addr }

// Size returns the disk's capacity in bytes, from the host.
func (d *Disk) Size() int64 { return d.size }

// Received returns the number of bytes that were received from the host, TLS included.
func (d *Disk) Received() int64 { return d.session.wire.received.Load() }

// Failed returns the reason why the session ended; nil while it works.
func (d *Disk) Failed() error { return d.session.endReason() }

// ReadAt fills p from off with several concurrent requests, as the options set. It fails unless every
// byte arrives. If ctx ends, it ends the session.
func (d *Disk) ReadAt(ctx context.Context, p []byte, off int64) error {
	return d.ReadAs(ctx, p, off, d.opts.Compression)
}

// ReadAs is ReadAt with another requested compression.
func (d *Disk) ReadAs(ctx context.Context, p []byte, off int64, c Compression) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	if err := disk.CheckRange(d.size, r); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	stop := context.AfterFunc(ctx, func() { d.session.failSession(errReadCanceled) })
	defer stop()
	err := d.readSectors(p, off, c)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("read %v: %w", r, err)
}

// readSectors reads whole sectors, because the behaviour of hosts for other requests is unknown. It
// copies if p is not aligned.
func (d *Disk) readSectors(p []byte, off int64, c Compression) error {
	lead := off % sectorSize
	if lead == 0 && len(p)%sectorSize == 0 {
		return d.readPipelined(p, off, c)
	}
	whole := make([]byte, (lead+int64(len(p))+sectorSize-1)/sectorSize*sectorSize)
	if err := d.readPipelined(whole, off-lead, c); err != nil {
		return err
	}
	copy(p, whole[lead:])
	return nil
}

// readPipelined keeps as many requests under way as there is room for. It returns only when none of
// them is left, even after an error, because the session writes into p until then.
func (d *Disk) readPipelined(p []byte, off int64, c Compression) (err error) {
	var under []*op // our requests, the oldest first
	for len(under) > 0 || len(p) > 0 && err == nil {
		if len(p) > 0 && err == nil && d.claimRoom(len(under) == 0) {
			n := min(len(p), int(d.opts.Request))
			var o *op
			if o, err = d.sendRead(p[:n:n], off, c); err == nil {
				under, p, off = append(under, o), p[n:], off+int64(n)
			}
			continue
		}
		failed := d.session.awaitReply(under[0])
		<-d.room
		if under = under[1:]; err == nil {
			err = failed
		}
	}
	return err
}

// claimRoom reserves room for one request. Only with wait does it block: a caller with requests under
// way must receive instead, because all other callers may block here.
func (d *Disk) claimRoom(wait bool) bool {
	if wait {
		d.room <- struct{}{}
		return true
	}
	select {
	case d.room <- struct{}{}:
		return true
	default:
		return false
	}
}

// sendRead sends a request for p. claimRoom must have reserved its room, which it releases on failure.
func (d *Disk) sendRead(p []byte, off int64, c Compression) (*op, error) {
	o := &op{kind: frameIO, read: &readOp{dst: p, off: off}}
	if err := d.session.sendRequest(o, readRequest(d.handle, off, len(p), c), nil); err != nil {
		<-d.room
		return nil, err
	}
	return o, nil
}

// Extents describes r by the host's allocation map: data where the file, or the chain below it, has
// blocks. A partial chunk at the end of the disk is data. If the host has no map, the error is
// fault.Unsupported, and the session remains usable.
//
// It is not certain that the map of a snapshot's layer includes its parents. The caller must test it
// first.
func (d *Disk) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := disk.CheckRange(d.size, r); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { d.session.failSession(errReadCanceled) })
	defer stop()
	var data []disk.Range
	mapped := d.size / mapChunk * mapChunk
	for at := r.Off / mapChunk * mapChunk; at < min(r.End(), mapped); {
		count := int(min((min(r.End(), mapped)-at+mapChunk-1)/mapChunk, mostChunks))
		used, err := d.queryAllocated(at, count)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("map of %v: %w", r, err)
		}
		data = append(data, used...)
		at += int64(count) * mapChunk
	}
	if r.End() > mapped {
		data = append(data, disk.Range{Off: mapped, Len: d.size - mapped})
	}
	return disk.Describe(r, data), nil
}

// Hints suggests as many concurrent readers as there can be requests under way.
func (d *Disk) Hints() disk.Hints {
	return disk.Hints{Request: d.opts.Request, Streams: d.opts.Depth}
}

// Close closes the file and the session, if the host still answers. Reads under way fail.
func (d *Disk) Close() error {
	d.session.close(d.handle)
	return nil
}
