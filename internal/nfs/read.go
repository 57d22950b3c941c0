package nfs

import (
	"context"

	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// replyRoom is the size of a READ or READDIR reply without its data, in bytes, rounded up.
const replyRoom = 512

// readArgs is READ3args (RFC 1813 section 3.3.6).
type readArgs struct {
	target
	off   uint64 // offset in the file, which may be after its end
	count uint32 // bytes requested, at most maxTransfer
}

// decodeRead decodes READ and returns its answer. The call waits for memory of the reply's size before
// it is answered.
func (p *dataProcedures) decodeRead(_ context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
	a := readArgs{target: p.args.decodeTarget(c.Args), off: c.Args.Uint64(), count: min(c.Args.Uint32(), maxTransfer)}
	c.Expect = int(a.count) + replyRoom
	return func(ctx context.Context, e *xdr.Encoder) error {
		start := e.Len()
		err := p.readInto(ctx, a, e)
		if err == nil {
			return nil
		}
		e.Truncate(start)
		return encodeResult(ctx, e, result{err: err, fail: p.files.postOpAttrOf(a.target).encode})
	}, nil
}

// readInto encodes READ3resok. It reads the data directly into the reply. After an error, the caller
// truncates e.
func (p *dataProcedures) readInto(ctx context.Context, a readArgs, e *xdr.Encoder) error {
	f, err := p.files.openRegular(a.target)
	if err != nil {
		return err
	}
	defer p.files.release(a.node, f)
	if a.off > maxFileSize {
		return statusInval
	}
	at, err := f.readAttr(a.node)
	if err != nil {
		return err
	}
	e.Uint32(uint32(statusOK))
	postOpAttr{at, a.node.export.id}.encode(e)
	counts := e.Len()
	for range 3 { // count, eof and the length of the data are set after the read
		e.Uint32(0)
	}
	data := e.Extend(int(a.count))
	n, err := f.content.ReadAt(ctx, data, int64(a.off))
	if err != nil && !isEnd(err) {
		return err
	}
	e.PutUint32(counts, uint32(n))
	if n < len(data) || a.off+uint64(n) >= at.size {
		e.PutUint32(counts+4, 1)
	}
	e.PutUint32(counts+8, uint32(n))
	e.Truncate(counts + 12 + n)
	e.Pad(n)
	return nil
}
