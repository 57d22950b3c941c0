package nfs

import (
	"context"
	"hash/crc32"

	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/xdr"
	"github.com/decamp/decamp/internal/writebehind"
)

// stable_how (RFC 1813 section 3.3.7).
const (
	unstable = 0 // COMMIT makes the data durable
	dataSync = 1 // the data is durable before the reply
	fileSync = 2 // data and attributes are durable before the reply
)

// castagnoli is the table of CRC-32C, which processors compute at memory speed. The whole payload is
// summed: a write that is mistaken for a repetition of another would be lost.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// dataProcedures answers READ, WRITE and COMMIT. It has no lock: calls run concurrently, and a Content
// orders writes to the same bytes.
type dataProcedures struct {
	files    *fileCache     // open files
	args     *argDecoder    // decoder of handles
	memory   *payloadMemory // buffers of WRITE payloads
	durable  bool           // Options.Durable
	verifier uint64         // write verifier of the replies
}

// writeCall is the state of a WRITE between its decoding and its reply.
type writeCall struct {
	target
	p      *dataProcedures // procedures that the call belongs to
	file   *file           // file with a reference for the call; nil if it could not be opened, or was released
	buf    *Buffer         // payload; nil if it is empty or the Content owns it
	spare  bool            // buf is spare memory, see payload.go
	off    uint64          // offset in the file, in bytes
	count  uint32          // length of the payload, in bytes
	stable uint32          // unstable, dataSync or fileSync, as requested
	err    error           // error of decoding, opening, or TryWrite; the reply reports it
}

// decodeWrite decodes WRITE (RFC 1813 section 3.3.7). It opens the file before it reads the payload,
// because the file determines the payload's pool. While the pool is used up, the connection is not
// read.
func (p *dataProcedures) decodeWrite(ctx context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
	d := c.Args
	w := &writeCall{p: p, target: p.args.decodeTarget(d), off: d.Uint64(), count: d.Uint32(), stable: d.Uint32()}
	length := d.Length(maxTransfer)
	if w.stable > fileSync {
		d.Fail("stable_how %d", w.stable)
	}
	if int(w.count) != length {
		d.Fail("%d bytes announced, %d sent", w.count, length)
	}
	if d.Err() != nil {
		return nil, d.Err()
	}
	if w.err = w.openFile(c); w.err == nil && length > 0 {
		w.buf, w.spare, w.err = p.memory.getBuffer(ctx, c, w.file, length, w.payloadPlace())
	}
	if w.buf != nil {
		d.Read(w.buf.Bytes())
		d.Pad(length)
		c.Sum = crc32.Checksum(w.buf.Bytes(), castagnoli)
	}
	c.Free, c.Quick = w.releaseAll, w.tryQuick
	return w.writeAndReply, nil
}

// tryQuick passes the payload to the Content if that need not wait, and reports whether it did. Then
// writeAndReply only encodes the reply.
func (w *writeCall) tryQuick() bool {
	if w.buf == nil || w.spare || w.file.tryWriter == nil || w.p.durable {
		return false
	}
	taken, err := w.file.tryWriter.TryWrite(w.buf, int64(w.off))
	if !taken {
		return false
	}
	if w.buf, w.err = nil, err; err == nil {
		w.node.file.touch()
	}
	return true
}

// payloadPlace returns the destination of the payload, a hint for its memory. Two files with one inode
// number, in two exports, would only make it slower.
func (w *writeCall) payloadPlace() writebehind.DiskOffset {
	if !w.file.special {
		return writebehind.DiskOffset{}
	}
	return writebehind.DiskOffset{Disk: w.node.id.ino, Off: int64(w.off)}
}

// openFile opens the file of the call. It fails before the payload is read if the file must not be
// written.
func (w *writeCall) openFile(c *oncrpc.Call) error {
	if w.target.err != nil {
		return w.target.err
	}
	x := w.node.export
	if x.Writable != nil {
		if err := x.mayChange(x.pathOf(w.node)); err != nil {
			return err
		}
	}
	if w.off > maxFileSize-uint64(w.count) {
		return statusFBig
	}
	if w.file = w.p.files.acquireOpen(w.node); w.file != nil {
		return nil
	}
	c.Pause() // opening a Content may take long
	var err error
	w.file, err = w.p.files.openRegular(w.target)
	return err
}

// releaseAll releases the payload, if the call owns it, and the file. It may be called more than once.
func (w *writeCall) releaseAll() {
	if w.buf != nil {
		w.buf.Release()
		w.buf = nil
	}
	w.releaseFile()
}

// releaseFile ends the use of the file.
func (w *writeCall) releaseFile() {
	if w.file != nil {
		w.p.files.release(w.node, w.file)
		w.file = nil
	}
}

// writeAndReply writes the payload and encodes WRITE3res. The reply has no attributes from before the
// call: other writes run at the same time, and a client that trusts wrong ones would keep stale pages.
func (w *writeCall) writeAndReply(ctx context.Context, e *xdr.Encoder) error {
	defer w.releaseAll()
	err := w.err
	if err == nil {
		err = w.writePayload(ctx)
	}
	var after postOpAttr
	if w.file != nil {
		a, statErr := w.file.readAttr(w.node)
		if statErr == nil {
			after = postOpAttr{a, w.node.export.id}
		} else if err == nil {
			err = statErr // the file was removed meanwhile, and the bytes with it
		}
	}
	wcc := wccData{after: after}
	return encodeResult(ctx, e, result{err: err, fail: wcc.encode, ok: func(e *xdr.Encoder) {
		wcc.encode(e)
		e.Uint32(w.count)
		e.Uint32(w.stableHow())
		e.Uint64(w.p.verifier)
	}})
}

// writePayload passes the payload to the Content. With Options.Durable, it commits stable writes.
func (w *writeCall) writePayload(ctx context.Context) error {
	if w.buf == nil {
		return nil
	}
	if w.spare {
		if err := w.moveFromSpare(ctx); err != nil {
			return err
		}
	}
	buf := w.buf
	w.buf = nil // the Content owns the payload, also if it fails
	if err := w.file.content.Write(ctx, buf, int64(w.off)); err != nil {
		return err
	}
	w.node.file.touch()
	if w.p.durable && w.stable != unstable {
		return w.file.content.Commit(ctx)
	}
	return nil
}

// moveFromSpare waits for memory of the file's pool and copies the payload there.
func (w *writeCall) moveFromSpare(ctx context.Context) error {
	own, err := w.p.memory.poolOf(w.file).GetAt(ctx, len(w.buf.Bytes()), w.payloadPlace())
	if err != nil {
		return err
	}
	copy(own.Bytes(), w.buf.Bytes())
	w.buf.Release()
	w.buf, w.spare = own, false
	return nil
}

// stableHow returns the stable_how of the reply. Without Options.Durable it is always FILE_SYNC; the
// package comment explains why.
func (w *writeCall) stableHow() uint32 {
	if w.p.durable && w.stable == unstable {
		return unstable
	}
	return fileSync
}

// decodeCommitArgs decodes COMMIT3args. Offset and count are ignored: the whole file is committed.
func (ad *argDecoder) decodeCommitArgs(d *xdr.Decoder) target {
	t := ad.decodeTarget(d)
	_, _ = d.Uint64(), d.Uint32()
	return t
}

// serveCommit answers COMMIT (RFC 1813 section 3.3.21).
func (p *dataProcedures) serveCommit(ctx context.Context, _ caller, t target) result {
	f, err := p.files.openRegular(t)
	if err == nil {
		defer p.files.release(t.node, f)
		err = f.content.Commit(ctx)
	}
	wcc := wccData{after: p.files.postOpAttrOf(t)}
	return result{err: err, fail: wcc.encode, ok: func(e *xdr.Encoder) {
		wcc.encode(e)
		e.Uint64(p.verifier)
	}}
}
