package nfs

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// getattr answers GETATTR. ESXi's heartbeat is this call.
func (s *Server) getattr(_ context.Context, _ caller, t target) result {
	if t.err != nil {
		return result{err: t.err}
	}
	a, err := s.attributes(t.node)
	return result{err: err, ok: func(e *xdr.Encoder) { encodeAttr(e, a, t.node.export.id) }}
}

// lookup answers LOOKUP.
func (s *Server) lookup(_ context.Context, _ caller, a nameArgs) result {
	found, err := s.lookUp(a)
	folder := s.view(a.dir)
	return result{err: err, fail: folder.encode, ok: func(e *xdr.Encoder) {
		e.Opaque(found.export.handle(found))
		s.view(target{node: found}).encode(e)
		folder.encode(e)
	}}
}

func (s *Server) lookUp(a nameArgs) (*node, error) {
	folder, err := s.holdFolder(a.dir)
	if err != nil {
		return nil, err
	}
	defer folder.close()
	if err := checkName(a.name); err != nil {
		return nil, err
	}
	switch a.name {
	case ".":
		return a.dir.node, nil
	case "..":
		return a.dir.node.export.up(a.dir.node), nil
	}
	n, _, err := a.dir.node.export.lookup(a.dir.node, folder, a.name)
	return n, err
}

// holdFolder opens a folder. The caller closes it.
func (s *Server) holdFolder(t target) (*object, error) {
	if t.err != nil {
		return nil, t.err
	}
	if t.node.format != unix.S_IFDIR {
		return nil, statusNotDir
	}
	return t.node.export.hold(t.node)
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

func (s *Server) accessArgs(d *xdr.Decoder) accessArgs {
	return accessArgs{s.handle(d), d.Uint32()}
}

// access answers ACCESS. Who was admitted may do everything, except what the export does
// not allow anybody.
func (s *Server) access(_ context.Context, _ caller, a accessArgs) result {
	v := s.view(a.target)
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

// readlink answers READLINK.
func (s *Server) readlink(_ context.Context, _ caller, t target) result {
	to, err := s.readLink(t)
	v := s.view(t)
	return result{err: err, fail: v.encode, ok: func(e *xdr.Encoder) {
		v.encode(e)
		e.String(to)
	}}
}

func (s *Server) readLink(t target) (string, error) {
	if t.err != nil {
		return "", t.err
	}
	if t.node.format != unix.S_IFLNK {
		return "", statusInval
	}
	o, err := t.node.export.hold(t.node)
	if err != nil {
		return "", err
	}
	defer o.close()
	return o.readLink()
}
