package nfs

import (
	"log/slog"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// nameProcedures answers what changes or looks up names in folders: LOOKUP, CREATE, MKDIR,
// SYMLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK. A change holds the changing of the folders
// that it concerns.
type nameProcedures struct {
	files   *files
	owners  *ownerRules
	attrs   *attrProcedures
	durable bool // Options.Durable
	log     *slog.Logger
}

// in changes names in a folder: it opens and locks it, asks whether the name may be
// changed, and says what the folder was before and after.
func (p *nameProcedures) in(t target, name string, do func(folder *object) error) (wcc change, err error) {
	if err := holdable(t); err != nil {
		return change{after: p.files.view(t)}, err
	}
	t.node.changing.Lock()
	defer t.node.changing.Unlock()
	folder, err := t.node.export.hold(t.node)
	if err != nil {
		return wcc, err
	}
	defer folder.close()
	wcc.before = folder.attr
	err = p.changeNames(t.node, folder, name, do)
	wcc.after = after(t.node, folder)
	return wcc, err
}

// changeNames does it, and makes it durable where that was asked for. What is cached of
// the folder's names ends here.
func (p *nameProcedures) changeNames(n *node, folder *object, name string, do func(*object) error) error {
	if err := n.export.mayChange(path.Join(n.export.pathOf(n), name)); err != nil {
		return err
	}
	n.listing = listing{}
	if err := do(folder); err != nil {
		return err
	}
	if p.durable {
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
func (p *nameProcedures) created(n *node, wcc change, err error) result {
	return result{err: err, fail: wcc.encode, ok: func(e *xdr.Encoder) {
		e.Bool(true)
		e.Opaque(n.export.handle(n))
		p.files.view(target{node: n}).encode(e)
		wcc.encode(e)
	}}
}

const (
	maxName = 255 // bytes, as on every file system an export is likely on
	maxPath = 4096

	// maxNameArg is how long a name may be in order to be refused politely.
	maxNameArg = maxPath
)

// checkName refuses what cannot be the name of something in a folder. "." and ".." pass:
// each procedure has its own answer to them.
func checkName(name string) error {
	switch {
	case name == "", strings.ContainsAny(name, "/\x00"):
		return statusAcces
	case len(name) > maxName:
		return statusNameTooLong
	}
	return nil
}

func isDot(name string) bool { return name == "." || name == ".." }

// checkNew refuses names that nothing can be created under.
func checkNew(name string) error {
	if isDot(name) {
		return statusExist
	}
	return checkName(name)
}

// checkOld refuses names that cannot be taken away.
func checkOld(name string) error {
	if isDot(name) {
		return statusInval
	}
	return checkName(name)
}

// holdable reports why a handle is not a folder's.
func holdable(t target) error {
	if t.err != nil {
		return t.err
	}
	if t.node.format != unix.S_IFDIR {
		return statusNotDir
	}
	return nil
}

// named is something held, and known.
type named struct {
	*object
	node *node
}

// holdNamed opens what name in a held folder is.
func (x *export) holdNamed(parent *node, folder *object, name string) (named, error) {
	o, err := openAt(folder.fd, name)
	if err != nil {
		return named{}, err
	}
	if !x.shows(o.attr) {
		o.close()
		return named{}, statusAcces
	}
	return named{o, x.meet(parent, name, o.attr)}, nil
}

// gone forgets a file that lost a name, if it has no other.
func (p *nameProcedures) gone(x *export, old named) {
	a, err := old.stat()
	if err == nil && a.nlink > 0 && a.format != unix.S_IFDIR {
		return
	}
	x.graves.bury(old.attr.id)
	x.lose(old.node)
	if err := p.files.forget(old.node); err != nil {
		p.log.Warn("close removed file", "file", x.pathOf(old.node), "err", err)
	}
}
