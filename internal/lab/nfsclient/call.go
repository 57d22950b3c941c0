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
	progNFS = 100003 // program number of NFS
	versNFS = 3      // version of NFS
)

// Procedures of RFC 1813 section 3.3.
const (
	procGetAttr = 1  // GETATTR: attributes of a file
	procSetAttr = 2  // SETATTR: set attributes
	procLookup  = 3  // LOOKUP: handle of a name
	procRead    = 6  // READ: data of a file
	procWrite   = 7  // WRITE: data to a file
	procCreate  = 8  // CREATE: a regular file
	procMkdir   = 9  // MKDIR: a directory
	procRemove  = 12 // REMOVE: a file
	procRmdir   = 13 // RMDIR: an empty directory
	procRename  = 14 // RENAME: a file or directory
	procReadDir = 17 // READDIRPLUS: entries of a directory with attributes
	procFSStat  = 18 // FSSTAT: space of a file system
	procFSInfo  = 19 // FSINFO: limits of a server
	procCommit  = 21 // COMMIT: make UNSTABLE data durable
)

// procNames are the names of the procedures, for errors.
var procNames = map[uint32]string{
	procGetAttr: "GETATTR", procSetAttr: "SETATTR", procLookup: "LOOKUP", procRead: "READ", procWrite: "WRITE", procCreate: "CREATE",
	procMkdir: "MKDIR", procRemove: "REMOVE", procRmdir: "RMDIR", procRename: "RENAME", procReadDir: "READDIRPLUS", procFSStat: "FSSTAT",
	procFSInfo: "FSINFO", procCommit: "COMMIT",
}

// A request is one NFS call.
type request struct {
	proc    uint32             // procedure number
	args    func(*xdr.Encoder) // encodes the arguments, without payload
	payload []byte             // data of a WRITE; sent without a copy, so it must not change during the call
	// ok decodes the results of a successful call, failed those of an unsuccessful one
	ok, failed func(*xdr.Decoder)
}

// rpcClient calls the procedures of one NFS server. Its methods may be called concurrently.
type rpcClient struct {
	cfg    Config        // configuration with defaults
	health *health       // heartbeats and the APD state
	links  []*link       // connections, which calls use in turn
	next   atomic.Uint32 // number of calls; selects the connection

	mu      sync.Mutex        // guards fileIDs
	fileIDs map[Handle]uint64 // first fileid of each handle; at most maxSeen entries
}

// maxSeen limits the number of handles whose fileid is checked.
const maxSeen = 100_000

// call makes one NFS call and waits for its reply. It retries while the server returns NFS3ERR_JUKEBOX,
// and waits through an outage of the server until the datastore is in APD.
func (d *rpcClient) call(ctx context.Context, r request) error {
	for {
		err := d.tryCall(ctx, r)
		if StatusOf(err) != ErrJukebox {
			return err
		}
		sleep(ctx, d.cfg.Times.Jukebox) // "try again later" (RFC 1813 section 2.6)
	}
}

// tryCall makes a call once. It fails immediately while all paths are down.
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

// readResult decodes the status and the results. A status other than OK becomes a StatusError.
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

// sendAndWait sends a call and waits for its reply, the end of ctx or down, or Times.GiveUp. If it
// returns a reply, the buffers of r are no longer in use.
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

// newMessage encodes a call with its record mark and a new xid.
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

// nextLink selects a connection, round robin.
func (d *rpcClient) nextLink() *link { return d.links[int(d.next.Add(1)-1)%len(d.links)] }

// checkFileID returns ErrFileID if the fileid of a handle has changed. Names of lock files contain the
// fileid, so a change would break the lock protocol.
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

// forgetHandle drops the recorded fileid of a handle.
func (d *rpcClient) forgetHandle(h Handle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.fileIDs, h)
}

// noResult decodes results without content.
func noResult(*xdr.Decoder) {}

// ignorePostOp decodes a post_op_attr and drops it.
func ignorePostOp(d *xdr.Decoder) { readPostOp(d) }

// ignoreWcc decodes wcc_data and drops it.
func ignoreWcc(d *xdr.Decoder) { readWcc(d) }

// handleArgs returns a function that encodes h as the only argument.
func handleArgs(h Handle) func(*xdr.Encoder) {
	return func(e *xdr.Encoder) { e.Opaque([]byte(h)) }
}

// dirOpArgs encodes a diropargs3: a directory and a name in it.
func dirOpArgs(e *xdr.Encoder, dir Handle, name string) {
	e.Opaque([]byte(dir))
	e.String(name)
}

// getAttr returns the attributes of a file.
func (d *rpcClient) getAttr(ctx context.Context, h Handle) (a Attr, err error) {
	err = d.call(ctx, request{proc: procGetAttr, args: handleArgs(h), ok: func(x *xdr.Decoder) { a = readAttr(x) }, failed: noResult})
	return a, errors.Join(err, d.checkFileID(h, postOp{a, err == nil}))
}

// setAttr sets attributes without a guard. It fails if the server reports another size than the one
// set.
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

// lookup returns the handle and the attributes of a name. If the server omits the attributes, it calls
// GETATTR.
func (d *rpcClient) lookup(ctx context.Context, dir Handle, name string) (h Handle, a Attr, err error) {
	var attr postOp
	err = d.call(ctx, request{
		proc: procLookup, args: func(e *xdr.Encoder) { dirOpArgs(e, dir, name) },
		ok: func(x *xdr.Decoder) {
			h, attr = readHandle(x), readPostOp(x)
			readPostOp(x) // attributes of the directory
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
	createUnchecked = 0 // an existing file is no error
	createGuarded   = 1 // an existing file is an error
	createExclusive = 2 // an existing file is an error, unless it was created with the same verifier
)

// createFile creates a file with mode 0600. With verf the CREATE is exclusive: the server recognizes a
// repeated call by the verifier, and the attributes are set by a second call.
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

// makeDir creates a directory with mode 0755.
func (d *rpcClient) makeDir(ctx context.Context, dir Handle, name string) error {
	mode := uint32(0o755)
	_, _, err := d.createObject(ctx, procMkdir, dir, name, func(e *xdr.Encoder) { sattr{mode: &mode}.appendTo(e) })
	return err
}

// createObject makes a CREATE or MKDIR call. If the server omits handle or attributes, further calls
// get them.
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

// removeName makes a REMOVE or RMDIR call.
func (d *rpcClient) removeName(ctx context.Context, proc uint32, dir Handle, name string) error {
	return d.call(ctx, request{proc: proc, args: func(e *xdr.Encoder) { dirOpArgs(e, dir, name) }, ok: ignoreWcc, failed: ignoreWcc})
}

// rename makes a RENAME call. It replaces an existing file.
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
	unstable = 0 // the server may keep the data in memory until COMMIT
	fileSync = 2 // the server stores data and metadata before it replies
)

// A verifier identifies an instance of the server: it changes when UNSTABLE data may be lost.
type verifier [writeVerf]byte

// writeOnce makes one WRITE and returns how many bytes the server wrote, which may be less than len(p).
// It fails if the data is less stable than requested.
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

// commitFile makes a COMMIT of the whole file and returns the write verifier.
func (d *rpcClient) commitFile(ctx context.Context, h Handle) (v verifier, err error) {
	var after postOp
	err = d.call(ctx, request{
		proc: procCommit,
		args: func(e *xdr.Encoder) {
			e.Opaque([]byte(h))
			e.Uint64(0) // offset: the beginning
			e.Uint32(0) // count 0: the whole file
		},
		ok: func(x *xdr.Decoder) {
			after = readWcc(x)
			copy(v[:], x.Fixed(writeVerf))
		},
		failed: ignoreWcc,
	})
	return v, errors.Join(err, d.checkFileID(h, after))
}

// readOnce makes one READ into p. It returns less than len(p) bytes if the server does.
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

// Space is the space of a file system as reported by FSSTAT, in bytes.
type Space struct{ Total, Free, Avail uint64 }

// fsStat makes an FSSTAT call. Values that contradict each other are an error.
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

// Limits are the transfer sizes reported by FSINFO, in bytes.
type Limits struct {
	ReadMax, ReadPref, WriteMax, WritePref uint32 // largest and preferred size of READ and WRITE
	MaxFileSize                            uint64 // largest file; 0 if the server reports none
}

// fsInfo makes an FSINFO call. A maximum of 0 for READ or WRITE is an error.
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
