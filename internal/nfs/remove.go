package nfs

import (
	"context"

	"golang.org/x/sys/unix"
)

// serveRemove answers REMOVE (RFC 1813 section 3.3.12).
func (p *nameProcedures) serveRemove(_ context.Context, _ caller, a nameArgs) result {
	wcc, err := p.changeFolder(a.dir, a.name, func(folder *object) error {
		if err := checkOld(a.name); err != nil {
			return err
		}
		return p.unlinkName(a, folder, 0)
	})
	return result{err: err, ok: wcc.encode, fail: wcc.encode}
}

// serveRmdir answers RMDIR (RFC 1813 section 3.3.13).
func (p *nameProcedures) serveRmdir(_ context.Context, _ caller, a nameArgs) result {
	wcc, err := p.changeFolder(a.dir, a.name, func(folder *object) error {
		if a.name == ".." {
			return statusExist // RFC 1813 section 3.3.13
		}
		if err := checkOld(a.name); err != nil {
			return err
		}
		return p.unlinkName(a, folder, unix.AT_REMOVEDIR)
	})
	return result{err: err, ok: wcc.encode, fail: wcc.encode}
}

// unlinkName removes a name, and forgets the file if it has no other name. flags is AT_REMOVEDIR for
// folders, else 0. The folder's changing must be held.
func (p *nameProcedures) unlinkName(a nameArgs, folder *object, flags int) error {
	x := a.dir.node.export
	old, err := x.openNamed(a.dir.node, folder, a.name)
	if err != nil {
		return err
	}
	defer old.close()
	if isFolder := old.attr.format == unix.S_IFDIR; isFolder && flags == 0 {
		return statusIsDir
	} else if !isFolder && flags != 0 {
		return statusNotDir
	}
	if err := unix.Unlinkat(folder.fd, a.name, flags); err != nil {
		return err
	}
	p.forgetRemoved(x, old)
	return nil
}
