package nfs

import (
	"context"

	"golang.org/x/sys/unix"
)

// remove answers REMOVE.
func (p *nameProcedures) remove(_ context.Context, _ caller, a nameArgs) result {
	wcc, err := p.in(a.dir, a.name, func(folder *object) error {
		if err := checkOld(a.name); err != nil {
			return err
		}
		return p.unlink(a, folder, 0)
	})
	return result{err: err, ok: wcc.encode, fail: wcc.encode}
}

// rmdir answers RMDIR.
func (p *nameProcedures) rmdir(_ context.Context, _ caller, a nameArgs) result {
	wcc, err := p.in(a.dir, a.name, func(folder *object) error {
		if a.name == ".." {
			return statusExist // RFC 1813 section 3.3.13
		}
		if err := checkOld(a.name); err != nil {
			return err
		}
		return p.unlink(a, folder, unix.AT_REMOVEDIR)
	})
	return result{err: err, ok: wcc.encode, fail: wcc.encode}
}

// unlink takes a name away, and forgets the file if that was its last.
func (p *nameProcedures) unlink(a nameArgs, folder *object, flags int) error {
	x := a.dir.node.export
	old, err := x.holdNamed(a.dir.node, folder, a.name)
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
	p.gone(x, old)
	return nil
}
