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
	files   *fileCache
	owners  *ownerRules
	attrs   *attrProcedures
	durable bool // Options.Durable
	log     *slog.Logger
}

// changeFolder changes names in a folder: it opens and locks it, asks whether the name may be
// changed, and says what the folder was before and after.
func (p *nameProcedures) changeFolder(t target, name string, do func(folder *object) error) (wcc wccData, err error) {
	if err := checkFolder(t); err != nil {
		return wccData{after: p.files.postOpAttrOf(t)}, err
	}
	t.node.changing.Lock()
	defer t.node.changing.Unlock()
	folder, err := t.node.export.openNode(t.node)
	if err != nil {
		return wcc, err
	}
	defer folder.close()
	wcc.before = folder.attr
	err = p.changeNames(t.node, folder, name, do)
	wcc.after = folderAttr(t.node, folder)
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

// folderAttr returns a folder's attributes as they are now.
func folderAttr(n *node, folder *object) postOpAttr {
	a, err := folder.stat()
	if err != nil {
		return postOpAttr{}
	}
	return postOpAttr{a, n.export.id}
}

// creationResult is what CREATE, MKDIR and SYMLINK answer.
func (p *nameProcedures) creationResult(n *node, wcc wccData, err error) result {
	return result{err: err, fail: wcc.encode, ok: func(e *xdr.Encoder) {
		e.Bool(true)
		e.Opaque(n.export.handleOf(n))
		p.files.postOpAttrOf(target{node: n}).encode(e)
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

// checkFolder reports why a handle is not a folder's.
func checkFolder(t target) error {
	if t.err != nil {
		return t.err
	}
	if t.node.format != unix.S_IFDIR {
		return statusNotDir
	}
	return nil
}

// named is something held, and known.
type openEntry struct {
	*object
	node *node
}

// openNamed opens what name in a held folder is.
func (x *export) openNamed(parent *node, folder *object, name string) (openEntry, error) {
	o, err := openAt(folder.fd, name)
	if err != nil {
		return openEntry{}, err
	}
	if !x.isVisible(o.attr) {
		o.close()
		return openEntry{}, statusAcces
	}
	return openEntry{o, x.addNode(parent, name, o.attr)}, nil
}

// forgetRemoved forgets a file that lost a name, if it has no other.
func (p *nameProcedures) forgetRemoved(x *export, old openEntry) {
	a, err := old.stat()
	if err == nil && a.nlink > 0 && a.format != unix.S_IFDIR {
		return
	}
	x.removed.add(old.attr.id)
	x.removeNode(old.node)
	if err := p.files.forget(old.node); err != nil {
		p.log.Warn("close removed file", "file", x.pathOf(old.node), "err", err)
	}
}
