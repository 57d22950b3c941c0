package nfs

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// lookup answers LOOKUP.
func (p *nameProcedures) lookup(_ context.Context, _ caller, a nameArgs) result {
	found, err := p.lookUp(a)
	folder := p.files.view(a.dir)
	return result{err: err, fail: folder.encode, ok: func(e *xdr.Encoder) {
		e.Opaque(found.export.handle(found))
		p.files.view(target{node: found}).encode(e)
		folder.encode(e)
	}}
}

func (p *nameProcedures) lookUp(a nameArgs) (*node, error) {
	folder, err := holdFolder(a.dir)
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
func holdFolder(t target) (*object, error) {
	if t.err != nil {
		return nil, t.err
	}
	if t.node.format != unix.S_IFDIR {
		return nil, statusNotDir
	}
	return t.node.export.hold(t.node)
}
