package nfs

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// attrProcedures answers what concerns the attributes of files and of file systems: GETATTR,
// SETATTR, ACCESS, READLINK, FSSTAT, FSINFO and PATHCONF. SETATTR holds the file's changing.
type attrProcedures struct {
	files   *fileCache
	owners  *ownerRules
	durable bool // Options.Durable
}

// serveGetattr answers GETATTR. ESXi's heartbeat is this call.
func (p *attrProcedures) serveGetattr(_ context.Context, _ caller, t target) result {
	if t.err != nil {
		return result{err: t.err}
	}
	a, err := p.files.attrOf(t.node)
	return result{err: err, ok: func(e *xdr.Encoder) { encodeAttr(e, a, t.node.export.id) }}
}

// Bits of ACCESS (RFC 1813 section 3.3.4).
const (
	accessRead    = 0x01
	accessLookup  = 0x02
	accessModify  = 0x04
	accessExtend  = 0x08
	accessDelete  = 0x10
	accessExecute = 0x20

	accessChange = accessModify | accessExtend | accessDelete
	anyExecute   = 0o111
)

type accessArgs struct {
	target
	bits uint32
}

func (ad *argDecoder) decodeAccessArgs(d *xdr.Decoder) accessArgs {
	return accessArgs{ad.decodeTarget(d), d.Uint32()}
}

// serveAccess answers ACCESS. Who was admitted may do everything, except what the export does
// not allow anybody.
func (p *attrProcedures) serveAccess(_ context.Context, _ caller, a accessArgs) result {
	v := p.files.postOpAttrOf(a.target)
	if a.err == nil && v.attr == nil {
		a.err = statusStale
	}
	if a.err != nil {
		return result{err: a.err, fail: v.encode}
	}
	allowed := uint32(accessRead | accessChange)
	if v.format == unix.S_IFDIR {
		allowed |= accessLookup
	} else if v.mode&anyExecute != 0 {
		allowed |= accessExecute
	}
	if a.node.export.mayChange(a.node.export.pathOf(a.node)) != nil {
		allowed &^= accessChange
	}
	return result{ok: func(e *xdr.Encoder) {
		v.encode(e)
		e.Uint32(a.bits & allowed)
	}}
}

// serveReadlink answers READLINK.
func (p *attrProcedures) serveReadlink(_ context.Context, _ caller, t target) result {
	to, err := p.readLink(t)
	v := p.files.postOpAttrOf(t)
	return result{err: err, fail: v.encode, ok: func(e *xdr.Encoder) {
		v.encode(e)
		e.String(to)
	}}
}

func (p *attrProcedures) readLink(t target) (string, error) {
	if t.err != nil {
		return "", t.err
	}
	if t.node.format != unix.S_IFLNK {
		return "", statusInval
	}
	o, err := t.node.export.openNode(t.node)
	if err != nil {
		return "", err
	}
	defer o.close()
	return o.readLink()
}
