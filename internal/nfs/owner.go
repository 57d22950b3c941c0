package nfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// nobody is the user and the group that root is mapped to, as in exports(5).
const nobody = 65534

// squash maps root to nobody, unless Options.NoRootSquash is set.
func (s *Server) squash(id uint32) uint32 {
	if id == 0 && !s.opts.NoRootSquash {
		return nobody
	}
	return id
}

// isRoot reports whether a client may act as root.
func (s *Server) isRoot(by caller) bool { return by.uid == 0 && s.opts.NoRootSquash }

// setOwner sets the owner of a new file: its creator, or the owner that a client's root requests. A
// file system or a user namespace may have no such owner. Then the file belongs to the server's user.
func (s *Server) setOwner(o *object, by caller, a newAttr) error {
	if !s.root {
		return nil
	}
	owner := caller{s.squash(by.uid), s.squash(by.gid)}
	if s.isRoot(by) && a.uid != nil {
		owner.uid = *a.uid
	}
	if s.isRoot(by) && a.gid != nil {
		owner.gid = *a.gid
	}
	err := o.chown(int(owner.uid), int(owner.gid))
	if isErrno(err, unix.EPERM) || isErrno(err, unix.EINVAL) || isErrno(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// checkOwner checks the owner that a SETATTR requests, and leaves in a what changes. Only root may
// give a file to another user.
func (s *Server) checkOwner(by caller, a *newAttr, old *attr) error {
	for _, id := range []struct {
		want     **uint32
		old, own uint32
	}{{&a.uid, old.uid, by.uid}, {&a.gid, old.gid, by.gid}} {
		if *id.want == nil {
			continue
		}
		want := s.squash(**id.want)
		switch {
		case want != id.old && want != s.squash(id.own) && !s.isRoot(by):
			return statusPerm
		case want == id.old, !s.root: // otherwise, all files belong to the server's user
			*id.want = nil
		default:
			*id.want = &want
		}
	}
	return nil
}

// mayChown reports whether this process can change the owner of a file, and use the file afterwards.
func mayChown() bool {
	const needed = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // of 32 capabilities each
	return os.Geteuid() == 0 && unix.Capget(&header, &sets[0]) == nil && sets[0].Effective&needed == needed
}
