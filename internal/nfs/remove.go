package nfs

import (
	"cmp"
	"context"
	"path"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// remove answers REMOVE.
func (s *Server) remove(_ context.Context, _ caller, a nameArgs) result {
	wcc, err := s.in(a.dir, a.name, func(folder *object) error {
		if err := checkOld(a.name); err != nil {
			return err
		}
		return s.unlink(a, folder, 0)
	})
	return result{err: err, ok: wcc.encode, fail: wcc.encode}
}

// rmdir answers RMDIR.
func (s *Server) rmdir(_ context.Context, _ caller, a nameArgs) result {
	wcc, err := s.in(a.dir, a.name, func(folder *object) error {
		if a.name == ".." {
			return statusExist // RFC 1813 section 3.3.13
		}
		if err := checkOld(a.name); err != nil {
			return err
		}
		return s.unlink(a, folder, unix.AT_REMOVEDIR)
	})
	return result{err: err, ok: wcc.encode, fail: wcc.encode}
}

// unlink takes a name away, and forgets the file if that was its last.
func (s *Server) unlink(a nameArgs, folder *object, flags int) error {
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
	s.gone(x, old)
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
func (s *Server) gone(x *export, old named) {
	a, err := old.stat()
	if err == nil && a.nlink > 0 && a.format != unix.S_IFDIR {
		return
	}
	x.graves.bury(old.attr.id)
	x.lose(old.node)
	if err := s.files.forget(old.node); err != nil {
		s.opts.Log.Warn("close removed file", "file", x.pathOf(old.node), "err", err)
	}
}

// renameArgs is RENAME3args.
type renameArgs struct{ from, to nameArgs }

func (s *Server) renameArgs(d *xdr.Decoder) renameArgs {
	return renameArgs{s.nameArgs(d), s.nameArgs(d)}
}

// rename answers RENAME.
func (s *Server) rename(_ context.Context, _ caller, a renameArgs) result {
	from, to, err := s.move(a)
	both := func(e *xdr.Encoder) {
		from.encode(e)
		to.encode(e)
	}
	return result{err: err, ok: both, fail: both}
}

func (s *Server) move(a renameArgs) (from, to change, err error) {
	for _, t := range []target{a.from.dir, a.to.dir} {
		if err := holdable(t); err != nil {
			return change{after: s.view(a.from.dir)}, change{after: s.view(a.to.dir)}, err
		}
	}
	x := a.from.dir.node.export
	if x != a.to.dir.node.export {
		return from, to, statusXDev
	}
	unlock := lockBoth(a.from.dir.node, a.to.dir.node)
	defer unlock()
	source, err := x.hold(a.from.dir.node)
	if err != nil {
		return from, to, err
	}
	defer source.close()
	dest, err := x.hold(a.to.dir.node)
	if err != nil {
		return from, to, err
	}
	defer dest.close()
	from.before, to.before = source.attr, dest.attr
	err = s.changeNames(a.from.dir.node, source, a.from.name, func(*object) error {
		return s.changeNames(a.to.dir.node, dest, a.to.name, func(*object) error {
			return s.moveName(a, source, dest)
		})
	})
	from.after, to.after = after(a.from.dir.node, source), after(a.to.dir.node, dest)
	return from, to, err
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

// lockBoth locks two folders, in an order that is the same for everybody.
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

// moveName renames between two held folders, and forgets what was replaced.
func (s *Server) moveName(a renameArgs, source, dest *object) error {
	for _, name := range []string{a.from.name, a.to.name} {
		if err := checkOld(name); err != nil {
			return err
		}
	}
	x := a.from.dir.node.export
	moved, err := x.holdNamed(a.from.dir.node, source, a.from.name)
	if err != nil {
		return err
	}
	defer moved.close()
	replaced, err := x.holdNamed(a.to.dir.node, dest, a.to.name)
	if err != nil && statusOf(err) != statusNoEnt {
		return err
	}
	if replaced.object != nil {
		defer replaced.close()
	}
	err = unix.Renameat(source.fd, a.from.name, dest.fd, a.to.name)
	if isErrno(err, unix.EISDIR) || isErrno(err, unix.ENOTDIR) {
		return statusExist // RFC 1813 section 3.3.14: the two are not of a kind
	}
	if err != nil {
		return err
	}
	if replaced.object == nil || replaced.node != moved.node {
		x.meet(a.to.dir.node, a.to.name, moved.attr)
		moved.node.file.plain.Store(false) // another name may have another Content
	}
	if replaced.object != nil && replaced.node != moved.node {
		s.gone(x, replaced)
	}
	return nil
}

// linkArgs is LINK3args.
type linkArgs struct {
	file target
	to   nameArgs
}

func (s *Server) linkArgs(d *xdr.Decoder) linkArgs { return linkArgs{s.handle(d), s.nameArgs(d)} }

// link answers LINK.
func (s *Server) link(_ context.Context, _ caller, a linkArgs) result {
	wcc, err := s.in(a.to.dir, a.to.name, func(folder *object) error { return s.linkIn(a, folder) })
	file := s.view(a.file)
	both := func(e *xdr.Encoder) {
		file.encode(e)
		wcc.encode(e)
	}
	return result{err: err, ok: both, fail: both}
}

func (s *Server) linkIn(a linkArgs, folder *object) error {
	if a.file.err != nil {
		return a.file.err
	}
	if err := checkNew(a.to.name); err != nil {
		return err
	}
	x := a.file.node.export
	if x != a.to.dir.node.export {
		return statusXDev
	}
	if a.file.node.format == unix.S_IFDIR {
		return statusInval
	}
	if err := x.mayChange(path.Clean(x.pathOf(a.file.node))); err != nil {
		return err
	}
	o, err := x.hold(a.file.node)
	if err != nil {
		return err
	}
	defer o.close()
	return unix.Linkat(unix.AT_FDCWD, o.path(), folder.fd, a.to.name, unix.AT_SYMLINK_FOLLOW)
}
