package nfs

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// serveLookup answers LOOKUP (RFC 1813 section 3.3.3).
func (p *nameProcedures) serveLookup(_ context.Context, _ caller, a nameArgs) result {
	found, err := p.lookUp(a)
	folder := p.files.postOpAttrOf(a.dir)
	return result{err: err, fail: folder.encode, ok: func(e *xdr.Encoder) {
		e.Opaque(found.export.handleOf(found))
		p.files.postOpAttrOf(target{node: found}).encode(e)
		folder.encode(e)
	}}
}

// lookUp returns the node that a.name is in the folder a.dir. The folder is not locked: the result may
// be old when the client gets it.
func (p *nameProcedures) lookUp(a nameArgs) (*node, error) {
	folder, err := openFolder(a.dir)
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
		return a.dir.node.export.parentOf(a.dir.node), nil
	}
	n, _, err := a.dir.node.export.lookUpName(a.dir.node, folder, a.name)
	return n, err
}

// openFolder opens the folder t. It fails with statusNotDir for other files. The caller closes the
// object.
func openFolder(t target) (*object, error) {
	if t.err != nil {
		return nil, t.err
	}
	if t.node.format != unix.S_IFDIR {
		return nil, statusNotDir
	}
	return t.node.export.openNode(t.node)
}
