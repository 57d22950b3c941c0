package nfs

import (
	"cmp"
	"context"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// renameArgs is RENAME3args (RFC 1813 section 3.3.14).
type renameArgs struct{ from, to nameArgs }

// decodeRenameArgs decodes RENAME3args.
func (ad *argDecoder) decodeRenameArgs(d *xdr.Decoder) renameArgs {
	return renameArgs{ad.decodeNameArgs(d), ad.decodeNameArgs(d)}
}

// serveRename answers RENAME (RFC 1813 section 3.3.14).
func (p *nameProcedures) serveRename(_ context.Context, _ caller, a renameArgs) result {
	from, to, err := p.renameEntry(a)
	both := func(e *xdr.Encoder) {
		from.encode(e)
		to.encode(e)
	}
	return result{err: err, ok: both, fail: both}
}

// renameEntry locks and opens both folders and renames a file. It returns the attributes of both
// folders before and after. It fails with statusXDev if the folders are in two exports.
func (p *nameProcedures) renameEntry(a renameArgs) (from, to wccData, err error) {
	for _, t := range []target{a.from.dir, a.to.dir} {
		if err := checkFolder(t); err != nil {
			return wccData{after: p.files.postOpAttrOf(a.from.dir)}, wccData{after: p.files.postOpAttrOf(a.to.dir)}, err
		}
	}
	x := a.from.dir.node.export
	if x != a.to.dir.node.export {
		return from, to, statusXDev
	}
	unlock := lockBoth(a.from.dir.node, a.to.dir.node)
	defer unlock()
	source, err := x.openNode(a.from.dir.node)
	if err != nil {
		return from, to, err
	}
	defer source.close()
	dest, err := x.openNode(a.to.dir.node)
	if err != nil {
		return from, to, err
	}
	defer dest.close()
	from.before, to.before = source.attr, dest.attr
	err = p.changeNames(a.from.dir.node, source, a.from.name, func(*object) error {
		return p.changeNames(a.to.dir.node, dest, a.to.name, func(*object) error {
			return p.renameLocked(a, source, dest)
		})
	})
	from.after, to.after = folderAttr(a.from.dir.node, source), folderAttr(a.to.dir.node, dest)
	return from, to, err
}

// lockBoth locks two folders, which may be one. The order depends only on their identities, so that two
// calls cannot deadlock.
func lockBoth(a, b *node) (unlock func()) {
	if a == b {
		a.changing.Lock()
		return a.changing.Unlock
	}
	if cmp.Or(cmp.Compare(a.id.ino, b.id.ino), cmp.Compare(a.id.birth, b.id.birth)) > 0 {
		a, b = b, a
	}
	a.changing.Lock()
	b.changing.Lock()
	return func() {
		b.changing.Unlock()
		a.changing.Unlock()
	}
}

// renameLocked renames between two open folders. It forgets a file that was replaced, and the plain files
// that have another path now. The changing of both folders must be held.
func (p *nameProcedures) renameLocked(a renameArgs, source, dest *object) error {
	for _, name := range []string{a.from.name, a.to.name} {
		if err := checkOld(name); err != nil {
			return err
		}
	}
	x := a.from.dir.node.export
	moved, err := x.openNamed(a.from.dir.node, source, a.from.name)
	if err != nil {
		return err
	}
	defer moved.close()
	replaced, err := x.openNamed(a.to.dir.node, dest, a.to.name)
	if err != nil && statusOf(err) != statusNoEnt {
		return err
	}
	if replaced.object != nil {
		defer replaced.close()
	}
	err = unix.Renameat(source.fd, a.from.name, dest.fd, a.to.name)
	if isErrno(err, unix.EISDIR) || isErrno(err, unix.ENOTDIR) {
		return statusExist // RFC 1813 section 3.3.14: one is a folder, the other is not
	}
	if err != nil {
		return err
	}
	if replaced.object == nil || replaced.node != moved.node {
		x.addNode(a.to.dir.node, a.to.name, moved.attr)
		for _, n := range x.filesBelow(moved.node) {
			p.reopenPlain(n)
		}
	}
	if replaced.object != nil && replaced.node != moved.node {
		p.forgetRemoved(x, replaced)
	}
	return nil
}

// reopenPlain makes the next use of a file that has another path call Export.Open, which may return a
// Content for that path. A file with a Content keeps it.
func (p *nameProcedures) reopenPlain(n *node) {
	if n.export.Open == nil {
		return
	}
	if err := p.files.forgetPlain(n); err != nil {
		p.log.Warn("close renamed file", "file", n.export.pathOf(n), "err", err)
	}
}
