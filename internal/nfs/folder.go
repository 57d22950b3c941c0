package nfs

import (
	"path"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// in changes names in a folder: it opens and locks it, asks whether the name may be
// changed, and says what the folder was before and after.
func (s *Server) in(t target, name string, do func(folder *object) error) (wcc change, err error) {
	if err := holdable(t); err != nil {
		return change{after: s.view(t)}, err
	}
	t.node.changing.Lock()
	defer t.node.changing.Unlock()
	folder, err := t.node.export.hold(t.node)
	if err != nil {
		return wcc, err
	}
	defer folder.close()
	wcc.before = folder.attr
	err = s.changeNames(t.node, folder, name, do)
	wcc.after = after(t.node, folder)
	return wcc, err
}

// changeNames does it, and makes it durable where that was asked for. What is cached of
// the folder's names ends here.
func (s *Server) changeNames(n *node, folder *object, name string, do func(*object) error) error {
	if err := n.export.mayChange(path.Join(n.export.pathOf(n), name)); err != nil {
		return err
	}
	n.listing = listing{}
	if err := do(folder); err != nil {
		return err
	}
	if s.opts.Durable {
		return folder.sync()
	}
	return nil
}

// after returns a folder's attributes as they are now.
func after(n *node, folder *object) view {
	a, err := folder.stat()
	if err != nil {
		return view{}
	}
	return view{a, n.export.id}
}

// created is what CREATE, MKDIR and SYMLINK answer.
func (s *Server) created(n *node, wcc change, err error) result {
	return result{err: err, fail: wcc.encode, ok: func(e *xdr.Encoder) {
		e.Bool(true)
		e.Opaque(n.export.handle(n))
		s.view(target{node: n}).encode(e)
		wcc.encode(e)
	}}
}
