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
	unstable = 0
	dataSync = 1
	fileSync = 2
)

// castagnoli is the CRC that processors compute as fast as they read. A write that is taken
// for the repetition of another would be lost, so all of it is looked at.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// dataProcedures answers what moves the bytes of files: READ, WRITE and COMMIT. It has no lock:
// calls run at once, and Contents keep the order of those to the same bytes.
type dataProcedures struct {
	files    *fileCache
	args     *argDecoder
	memory   *payloadMemory
	durable  bool   // Options.Durable
	verifier uint64 // of writes
}

// writeCall is a WRITE between its decoding and its answer.
type writeCall struct {
	target
	p      *dataProcedures
	file   *file   // nil if the call fails
	buf    *Buffer // nil if there is nothing to write
	spare  bool    // buf is spare memory, see payload
	off    uint64
	count  uint32
	stable uint32
	err    error
}

// decodeWrite decodes WRITE: the file is opened first, because it decides whose memory the
// payload is read into. Without memory the connection is not read on.
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

// tryQuick hands the payload over if the Content takes it at once.
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

// payloadPlace is where the payload belongs. Inode numbers tell disks apart well enough: what they
// mix up would only be slower.
func (w *writeCall) payloadPlace() writebehind.Place {
	if !w.file.special {
		return writebehind.Place{}
	}
	return writebehind.Place{Disk: w.node.id.ino, Off: int64(w.off)}
}

// openFile refuses what cannot be written before its payload is read.
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
	c.Pause() // a Content may take long to open
	var err error
	w.file, err = w.p.files.openRegular(w.target)
	return err
}

// releaseAll gives back what the call has.
func (w *writeCall) releaseAll() {
	if w.buf != nil {
		w.buf.Release()
		w.buf = nil
	}
	w.releaseFile()
}

func (w *writeCall) releaseFile() {
	if w.file != nil {
		w.p.files.release(w.node, w.file)
		w.file = nil
	}
}

// writeAndReply writes and encodes WRITE3res. There are no attributes of before: other writes
// are in work at the same time, and a client that was told a wrong state would keep stale
// pages.
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
			err = statErr // it was removed meanwhile: the bytes are nowhere
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

// writePayload hands the payload over.
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
	w.buf = nil // the Content owns it, also if it fails
	if err := w.file.content.Write(ctx, buf, int64(w.off)); err != nil {
		return err
	}
	w.node.file.touch()
	if w.p.durable && w.stable != unstable {
		return w.file.content.Commit(ctx)
	}
	return nil
}

// moveFromSpare waits for the memory that the payload should have been read into.
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

// stableHow is what the answer says was done. A server that is not Durable says FILE_SYNC
// whatever was asked; the package comment says why that is honest.
func (w *writeCall) stableHow() uint32 {
	if w.p.durable && w.stable == unstable {
		return unstable
	}
	return fileSync
}

// decodeCommitArgs is COMMIT3args. Offset and count do not matter: all of the file is committed.
func (ad *argDecoder) decodeCommitArgs(d *xdr.Decoder) target {
	t := ad.decodeTarget(d)
	_, _ = d.Uint64(), d.Uint32()
	return t
}

// serveCommit answers COMMIT.
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
