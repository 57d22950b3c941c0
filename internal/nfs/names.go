package nfs

import (
	"log/slog"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// nameProcedures answers the calls that look up or change names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD,
// REMOVE, RMDIR, RENAME and LINK. A change holds the changing of its folders.
type nameProcedures struct {
	files   *fileCache      // open files; removed ones are forgotten there
	owners  *ownerRules     // owners of new files
	attrs   *attrProcedures // sets the size of new files
	durable bool            // Options.Durable: folders are synced before the answer
	log     *slog.Logger    // receives errors of closed files, which no call can report
}

// changeFolder opens and locks the folder t and calls do, if Export.Writable allows to change name in
// it. It returns the attributes of the folder before and after do, also if do fails.
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

// changeNames calls do and drops the cached names of the folder. With Options.Durable, it also syncs
// the folder. n.changing must be held.
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

// folderAttr returns the current attributes of an open folder; empty if they cannot be read.
func folderAttr(n *node, folder *object) postOpAttr {
	a, err := folder.stat()
	if err != nil {
		return postOpAttr{}
	}
	return postOpAttr{a, n.export.id}
}

// creationResult returns the result of CREATE, MKDIR or SYMLINK: handle and attributes of n. n may be
// nil if err is set.
func (p *nameProcedures) creationResult(n *node, wcc wccData, err error) result {
	return result{err: err, fail: wcc.encode, ok: func(e *xdr.Encoder) {
		e.Bool(true)
		e.Opaque(n.export.handleOf(n))
		p.files.postOpAttrOf(target{node: n}).encode(e)
		wcc.encode(e)
	}}
}

const (
	maxName = 255  // longest name in bytes, as on Linux file systems
	maxPath = 4096 // longest path in bytes: PATH_MAX

	// maxNameArg is the longest name that a call may contain. A longer one makes the call malformed; one
	// above maxName gets NFS3ERR_NAMETOOLONG.
	maxNameArg = maxPath
)

// checkName fails for strings that cannot be names in a folder. It accepts "." and "..": each procedure
// has another answer to them.
func checkName(name string) error {
	switch {
	case name == "", strings.ContainsAny(name, "/\x00"):
		return statusAcces
	case len(name) > maxName:
		return statusNameTooLong
	}
	return nil
}

// isDot reports whether name is "." or "..".
func isDot(name string) bool { return name == "." || name == ".." }

// checkNew fails for names that cannot be created. "." and ".." exist always.
func checkNew(name string) error {
	if isDot(name) {
		return statusExist
	}
	return checkName(name)
}

// checkOld fails for names that cannot be removed or renamed, including "." and "..".
func checkOld(name string) error {
	if isDot(name) {
		return statusInval
	}
	return checkName(name)
}

// checkFolder returns the error of t, or statusNotDir if t is not a folder.
func checkFolder(t target) error {
	if t.err != nil {
		return t.err
	}
	if t.node.format != unix.S_IFDIR {
		return statusNotDir
	}
	return nil
}

// openEntry is an open object together with its node.
type openEntry struct {
	*object
	node *node // node of the object
}

// openNamed opens name in an open folder, and adds its node. It fails with statusAcces for files that
// are not visible. The caller closes the entry.
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

// forgetRemoved deletes the node of an entry that lost a name. If the file has another name, it only makes
// its next use call Export.Open. old must be open, so that its inode is not used again before it is in removed.
func (p *nameProcedures) forgetRemoved(x *export, old openEntry) {
	a, err := old.stat()
	if err == nil && a.nlink > 0 && a.format != unix.S_IFDIR {
		p.reopenPlain(old.node)
		return
	}
	x.removed.add(old.attr.id)
	x.removeNode(old.node)
	if err := p.files.forget(old.node); err != nil {
		p.log.Warn("close removed file", "file", x.pathOf(old.node), "err", err)
	}
}
