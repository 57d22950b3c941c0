package nfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// nobodyID is the user and group that root is mapped to, as in exports(5).
const nobodyID = 65534

// ownerRules decides the owner of a file from the credentials of a call. It does not change.
type ownerRules struct {
	root     bool // this process may change the owner of files
	noSquash bool // Options.NoRootSquash
}

// squashRoot maps ID 0 to nobodyID, unless Options.NoRootSquash is set.
func (r *ownerRules) squashRoot(id uint32) uint32 {
	if id == 0 && !r.noSquash {
		return nobodyID
	}
	return id
}

// isRoot reports whether a client may act as root.
func (r *ownerRules) isRoot(by caller) bool { return by.uid == 0 && r.noSquash }

// setOwner sets the owner of a new file: its creator, or the owner that a client's root requests. A
// file system or a user namespace may have no such owner. Then the file belongs to the server's user.
func (r *ownerRules) setOwner(o *object, by caller, a newAttr) error {
	if !r.root {
		return nil
	}
	owner := caller{r.squashRoot(by.uid), r.squashRoot(by.gid)}
	if r.isRoot(by) && a.uid != nil {
		owner.uid = *a.uid
	}
	if r.isRoot(by) && a.gid != nil {
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
func (r *ownerRules) checkOwner(by caller, a *newAttr, old *attr) error {
	for _, id := range []struct {
		want     **uint32
		old, own uint32
	}{{&a.uid, old.uid, by.uid}, {&a.gid, old.gid, by.gid}} {
		if *id.want == nil {
			continue
		}
		want := r.squashRoot(**id.want)
		switch {
		case want != id.old && want != r.squashRoot(id.own) && !r.isRoot(by):
			return statusPerm
		case want == id.old, !r.root: // otherwise, all files belong to the server's user
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
	var sets [2]unix.CapUserData // each entry has 32 capabilities
	return os.Geteuid() == 0 && unix.Capget(&header, &sets[0]) == nil && sets[0].Effective&needed == needed
}
