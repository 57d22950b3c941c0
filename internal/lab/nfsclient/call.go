package nfsclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/lab/xdr"
)

const (
	progNFS = 100003
	versNFS = 3
)

// Procedures of RFC 1813 section 3.3.
const (
	procGetAttr = 1
	procSetAttr = 2
	procLookup  = 3
	procRead    = 6
	procWrite   = 7
	procCreate  = 8
	procMkdir   = 9
	procRemove  = 12
	procRmdir   = 13
	procRename  = 14
	procReadDir = 17 // READDIRPLUS
	procFSStat  = 18
	procFSInfo  = 19
	procCommit  = 21
)

var procNames = map[uint32]string{
	procGetAttr: "GETATTR", procSetAttr: "SETATTR", procLookup: "LOOKUP", procRead: "READ", procWrite: "WRITE", procCreate: "CREATE",
	procMkdir: "MKDIR", procRemove: "REMOVE", procRmdir: "RMDIR", procRename: "RENAME", procReadDir: "READDIRPLUS", procFSStat: "FSSTAT",
	procFSInfo: "FSINFO", procCommit: "COMMIT",
}

// A request is one NFS call.
type request struct {
	proc    uint32
	args    func(*xdr.Encoder)
	payload []byte // WRITE's data, sent from where it lies
	// ok takes the results of a call that succeeded, failed those of one that did not.
	ok, failed func(*xdr.Decoder)
}

// rpcClient calls the procedures of one NFS server. Its methods may be called concurrently.
type rpcClient struct {
	cfg    Config
	health *health
	links  []*link
	next   atomic.Uint32

	mu      sync.Mutex
	fileIDs map[Handle]uint64 // the fileid that each handle had first
}

// maxSeen bounds the memory of the check on fileids.
const maxSeen = 100_000

// call makes one NFS call and waits for its answer: however long the server is away, until
// the datastore goes APD.
func (d *rpcClient) call(ctx context.Context, r request) error {
	for {
		err := d.tryCall(ctx, r)
		if StatusOf(err) != ErrJukebox {
			return err
		}
		sleep(ctx, d.cfg.Times.Jukebox) // "try again later" (RFC 1813 section 2.6)
	}
}

func (d *rpcClient) tryCall(ctx context.Context, r request) error {
	down := d.health.downNow()
	if down != nil && context.Cause(down) != nil {
		return fmt.Errorf("%s: %w", procNames[r.proc], context.Cause(down))
	}
	reply, err := d.sendAndWait(ctx, down, r)
	if err != nil {
		return fmt.Errorf("%s: %w", procNames[r.proc], err)
	}
	return r.readResult(reply)
}

// readResult reads the status and the results that belong to it.
func (r request) readResult(d *xdr.Decoder) error {
	name := procNames[r.proc]
	status := Status(d.Uint32())
	if d.Err() == nil && status != OK {
		r.failed(d)
		if err := d.End(); err != nil {
			return fmt.Errorf("%s: %w (after %v)", name, err, status)
		}
		return &StatusError{Proc: name, Status: status}
	}
	r.ok(d)
	return wrapError(d.End(), name)
}

// sendAndWait sends the call and waits. down ends the wait when all paths are down.
func (d *rpcClient) sendAndWait(ctx, down context.Context, r request) (*xdr.Decoder, error) {
	l := d.nextLink()
	m := d.newMessage(r)
	giveUp := time.NewTimer(d.cfg.Times.GiveUp)
	defer giveUp.Stop()
	sent := make(chan struct{}) // closed when send returns: it blocks while the server reads nothing
	go func() {
		defer close(sent)
		l.sendCall(m)
	}()
	select {
	case reply := <-m.replied:
		<-sent // the buffers are the caller's again
		return reply.d, reply.err
	case <-ctx.Done():
		l.forgetCall(m)
		return nil, context.Cause(ctx)
	case <-down.Done():
		l.forgetCall(m)
		return nil, context.Cause(down)
	case <-giveUp.C:
		l.forgetCall(m)
		return nil, ErrGaveUp
	}
}

// newMessage encodes the call behind its record mark.
func (d *rpcClient) newMessage(r request) *message {
	m := &message{xid: lastXID.Add(1), replied: make(chan replyData, 1)}
	e := xdr.Encoder{B: make([]byte, 4, 256)}
	call := xdr.Call{XID: m.xid, Prog: progNFS, Vers: versNFS, Proc: r.proc}
	d.cfg.setCredentials(&call)
	call.Append(&e)
	r.args(&e)
	pad := xdr.Pad(len(r.payload))
	mark := xdr.Mark(len(e.B) - 4 + len(r.payload) + pad)
	copy(e.B, mark[:])
	m.parts = net.Buffers{e.B}
	if len(r.payload) > 0 {
		m.parts = append(m.parts, r.payload, make([]byte, pad))
	}
	return m
}

// nextLink takes the connections in turn.
func (d *rpcClient) nextLink() *link { return d.links[int(d.next.Add(1)-1)%len(d.links)] }

// checkFileID checks that a handle's fileid is what it was: lock files are named after it.
func (d *rpcClient) checkFileID(h Handle, p postOp) error {
	if !p.present || h == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	was, known := d.fileIDs[h]
	if known && was != p.FileID {
		return fmt.Errorf("handle %x: fileid %d, it was %d: %w", string(h), p.FileID, was, ErrFileID)
	}
	if !known && len(d.fileIDs) < maxSeen {
		d.fileIDs[h] = p.FileID
	}
	return nil
}

func (d *rpcClient) forgetHandle(h Handle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.fileIDs, h)
}

// noResult is for results that carry nothing.
func noResult(*xdr.Decoder) {}

func ignorePostOp(d *xdr.Decoder) { readPostOp(d) }
func ignoreWcc(d *xdr.Decoder)    { readWcc(d) }

// handleArgs is the argument of the calls that take one handle.
func handleArgs(h Handle) func(*xdr.Encoder) {
	return func(e *xdr.Encoder) { e.Opaque([]byte(h)) }
}

func dirOpArgs(e *xdr.Encoder, dir Handle, name string) {
	e.Opaque([]byte(dir))
	e.String(name)
}

// getAttr asks for a file's attributes.
func (d *rpcClient) getAttr(ctx context.Context, h Handle) (a Attr, err error) {
	err = d.call(ctx, request{proc: procGetAttr, args: handleArgs(h), ok: func(x *xdr.Decoder) { a = readAttr(x) }, failed: noResult})
	return a, errors.Join(err, d.checkFileID(h, postOp{a, err == nil}))
}

func (d *rpcClient) setAttr(ctx context.Context, h Handle, s sattr) error {
	var after postOp
	err := d.call(ctx, request{
		proc: procSetAttr,
		args: func(e *xdr.Encoder) {
			e.Opaque([]byte(h))
			s.appendTo(e)
			e.Bool(false) // no guard
		},
		ok: func(x *xdr.Decoder) { after = readWcc(x) }, failed: ignoreWcc,
	})
	if err == nil && after.present && s.size != nil && after.Size != *s.size {
		err = fmt.Errorf("SETATTR: size %d after setting it to %d", after.Size, *s.size)
	}
	return errors.Join(err, d.checkFileID(h, after))
}

func (d *rpcClient) lookup(ctx context.Context, dir Handle, name string) (h Handle, a Attr, err error) {
	var attr postOp
	err = d.call(ctx, request{
		proc: procLookup, args: func(e *xdr.Encoder) { dirOpArgs(e, dir, name) },
		ok: func(x *xdr.Decoder) {
			h, attr = readHandle(x), readPostOp(x)
			readPostOp(x) // of the directory
		},
		failed: ignorePostOp,
	})
	if err != nil {
		return "", a, err
	}
	if !attr.present {
		a, err = d.getAttr(ctx, h)
		return h, a, err
	}
	return h, attr.Attr, d.checkFileID(h, attr)
}

// Create modes (RFC 1813 section 3.3.8).
const (
	createUnchecked = 0
	createGuarded   = 1
	createExclusive = 2
)

// createFile makes a file. An exclusive one carries verf, by which the server knows a repeated
// call; its attributes are set afterwards.
func (d *rpcClient) createFile(ctx context.Context, dir Handle, name string, verf *uint64) (Handle, Attr, error) {
	mode := uint32(0o600)
	h, a, err := d.createObject(ctx, procCreate, dir, name, func(e *xdr.Encoder) {
		if verf != nil {
			e.Uint32(createExclusive)
			e.Uint64(*verf)
			return
		}
		e.Uint32(createGuarded)
		sattr{mode: &mode}.appendTo(e)
	})
	if err == nil && verf != nil {
		err = d.setAttr(ctx, h, sattr{mode: &mode})
	}
	return h, a, err
}

func (d *rpcClient) makeDir(ctx context.Context, dir Handle, name string) error {
	mode := uint32(0o755)
	_, _, err := d.createObject(ctx, procMkdir, dir, name, func(e *xdr.Encoder) { sattr{mode: &mode}.appendTo(e) })
	return err
}

// createObject is CREATE or MKDIR. Both may leave out what they made; then it is looked up.
func (d *rpcClient) createObject(ctx context.Context, proc uint32, dir Handle, name string, how func(*xdr.Encoder)) (h Handle, a Attr, err error) {
	var attr postOp
	err = d.call(ctx, request{
		proc: proc,
		args: func(e *xdr.Encoder) {
			dirOpArgs(e, dir, name)
			how(e)
		},
		ok: func(x *xdr.Decoder) {
			if x.Bool() {
				h = readHandle(x)
			}
			attr = readPostOp(x)
			readWcc(x)
		},
		failed: ignoreWcc,
	})
	switch {
	case err != nil:
		return "", a, err
	case h == "":
		return d.lookup(ctx, dir, name)
	case !attr.present:
		a, err = d.getAttr(ctx, h)
		return h, a, err
	}
	return h, attr.Attr, d.checkFileID(h, attr)
}

// removeName is REMOVE or RMDIR.
func (d *rpcClient) removeName(ctx context.Context, proc uint32, dir Handle, name string) error {
	return d.call(ctx, request{proc: proc, args: func(e *xdr.Encoder) { dirOpArgs(e, dir, name) }, ok: ignoreWcc, failed: ignoreWcc})
}

func (d *rpcClient) rename(ctx context.Context, from Handle, old string, to Handle, name string) error {
	both := func(x *xdr.Decoder) {
		readWcc(x)
		readWcc(x)
	}
	return d.call(ctx, request{
		proc: procRename,
		args: func(e *xdr.Encoder) {
			dirOpArgs(e, from, old)
			dirOpArgs(e, to, name)
		},
		ok: both, failed: both,
	})
}

// stable_how of WRITE (RFC 1813 section 3.3.7).
const (
	unstable = 0
	fileSync = 2
)

type verifier [writeVerf]byte

// writeOnce makes one WRITE and returns how much the server took.
func (d *rpcClient) writeOnce(ctx context.Context, h Handle, p []byte, off int64, stable uint32) (n int, v verifier, err error) {
	var after postOp
	var count, committed uint32
	err = d.call(ctx, request{
		proc: procWrite, payload: p,
		args: func(e *xdr.Encoder) {
			e.Opaque([]byte(h))
			e.Uint64(uint64(off))
			e.Uint32(uint32(len(p)))
			e.Uint32(stable)
			e.Uint32(uint32(len(p)))
		},
		ok: func(x *xdr.Decoder) {
			after = readWcc(x)
			count, committed = x.Uint32(), x.Uint32()
			copy(v[:], x.Fixed(writeVerf))
		},
		failed: ignoreWcc,
	})
	switch {
	case err != nil:
		return 0, v, err
	case count == 0 && len(p) > 0 || int64(count) > int64(len(p)):
		return 0, v, fmt.Errorf("WRITE: count %d of %d bytes sent", count, len(p))
	case committed < stable || committed > fileSync:
		return 0, v, fmt.Errorf("WRITE: asked for stable_how %d, got %d: %w", stable, committed, ErrStable)
	case after.present && after.Size < uint64(off)+uint64(count):
		return 0, v, fmt.Errorf("WRITE: file of %d bytes after %d bytes were written at %d", after.Size, count, off)
	}
	return int(count), v, d.checkFileID(h, after)
}

func (d *rpcClient) commitFile(ctx context.Context, h Handle) (v verifier, err error) {
	var after postOp
	err = d.call(ctx, request{
		proc: procCommit,
		args: func(e *xdr.Encoder) {
			e.Opaque([]byte(h))
			e.Uint64(0) // from the beginning,
			e.Uint32(0) // all of it
		},
		ok: func(x *xdr.Decoder) {
			after = readWcc(x)
			copy(v[:], x.Fixed(writeVerf))
		},
		failed: ignoreWcc,
	})
	return v, errors.Join(err, d.checkFileID(h, after))
}

// readOnce makes one READ into p.
func (d *rpcClient) readOnce(ctx context.Context, h Handle, p []byte, off int64) (n int, eof bool, err error) {
	var after postOp
	var count uint32
	err = d.call(ctx, request{
		proc: procRead,
		args: func(e *xdr.Encoder) {
			e.Opaque([]byte(h))
			e.Uint64(uint64(off))
			e.Uint32(uint32(len(p)))
		},
		ok: func(x *xdr.Decoder) {
			after = readPostOp(x)
			count, eof = x.Uint32(), x.Bool()
			data := x.Opaque(len(p))
			if int(count) != len(data) {
				x.Fail("count %d of %d bytes of data", count, len(data))
			}
			n = copy(p, data)
		},
		failed: ignorePostOp,
	})
	if err == nil && n == 0 && !eof && len(p) > 0 {
		err = errors.New("READ: no data and not the end of the file")
	}
	return n, eof, errors.Join(err, d.checkFileID(h, after))
}

// Space is what FSSTAT says, in bytes.
type Space struct{ Total, Free, Avail uint64 }

func (d *rpcClient) fsStat(ctx context.Context, root Handle) (s Space, err error) {
	err = d.call(ctx, request{
		proc: procFSStat, args: handleArgs(root),
		ok: func(x *xdr.Decoder) {
			readPostOp(x)
			s = Space{Total: x.Uint64(), Free: x.Uint64(), Avail: x.Uint64()}
			x.Uint64() // files, free files, available files
			x.Uint64()
			x.Uint64()
			x.Uint32() // invarsec
		},
		failed: ignorePostOp,
	})
	if err == nil && (s.Free > s.Total || s.Avail > s.Total) {
		err = fmt.Errorf("FSSTAT: %d bytes free, %d available, %d in all", s.Free, s.Avail, s.Total)
	}
	return s, err
}

// Limits is what FSINFO says, in bytes.
type Limits struct {
	ReadMax, ReadPref, WriteMax, WritePref uint32
	MaxFileSize                            uint64
}

func (d *rpcClient) fsInfo(ctx context.Context, root Handle) (l Limits, err error) {
	err = d.call(ctx, request{
		proc: procFSInfo, args: handleArgs(root),
		ok: func(x *xdr.Decoder) {
			readPostOp(x)
			l.ReadMax, l.ReadPref = x.Uint32(), x.Uint32()
			x.Uint32() // rtmult
			l.WriteMax, l.WritePref = x.Uint32(), x.Uint32()
			x.Uint32() // wtmult
			x.Uint32() // dtpref
			l.MaxFileSize = x.Uint64()
			readTime(x) // time_delta
			x.Uint32()  // properties
		},
		failed: ignorePostOp,
	})
	if err == nil && (l.ReadMax == 0 || l.WriteMax == 0) {
		err = fmt.Errorf("FSINFO: rtmax %d, wtmax %d", l.ReadMax, l.WriteMax)
	}
	return l, err
}
