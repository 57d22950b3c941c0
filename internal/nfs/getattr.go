package nfs

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// attrProcedures answers the calls about attributes of files and file systems: GETATTR, SETATTR,
// ACCESS, READLINK, FSSTAT, FSINFO and PATHCONF. SETATTR holds the file's changing.
type attrProcedures struct {
	files   *fileCache  // open files, whose Contents have the current sizes
	owners  *ownerRules // rules for a change of owner
	durable bool        // Options.Durable: a new size is committed before the answer
}

// serveGetattr answers GETATTR (RFC 1813 section 3.3.1). ESXi uses it as the heartbeat of a datastore.
func (p *attrProcedures) serveGetattr(_ context.Context, _ caller, t target) result {
	if t.err != nil {
		return result{err: t.err}
	}
	a, err := p.files.attrOf(t.node)
	return result{err: err, ok: func(e *xdr.Encoder) { encodeAttr(e, a, t.node.export.id) }}
}

// Bits of ACCESS (RFC 1813 section 3.3.4).
const (
	accessRead    = 0x01 // read a file, list a folder
	accessLookup  = 0x02 // look up a name in a folder
	accessModify  = 0x04 // overwrite data, change names
	accessExtend  = 0x08 // append data, add names
	accessDelete  = 0x10 // remove names
	accessExecute = 0x20 // run a file

	accessChange = accessModify | accessExtend | accessDelete // all bits that Export.Writable decides
	anyExecute   = 0o111                                      // execute bits of a mode: one of them allows accessExecute
)

// accessArgs is ACCESS3args.
type accessArgs struct {
	target
	bits uint32 // rights that the client requests, accessRead and so on
}

// decodeAccessArgs decodes ACCESS3args.
func (ad *argDecoder) decodeAccessArgs(d *xdr.Decoder) accessArgs {
	return accessArgs{ad.decodeTarget(d), d.Uint32()}
}

// serveAccess answers ACCESS (RFC 1813 section 3.3.4). Modes and owners do not matter: an admitted
// client may do everything that Export.Writable allows.
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

// serveReadlink answers READLINK (RFC 1813 section 3.3.5).
func (p *attrProcedures) serveReadlink(_ context.Context, _ caller, t target) result {
	to, err := p.readLink(t)
	v := p.files.postOpAttrOf(t)
	return result{err: err, fail: v.encode, ok: func(e *xdr.Encoder) {
		v.encode(e)
		e.String(to)
	}}
}

// readLink returns the text of a link. It fails with statusInval if t is not a link.
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
