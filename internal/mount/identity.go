package mount

import (
	"errors"
	"os/user"
	"strconv"
	"syscall"

	"github.com/decamp/decamp/internal/fault"
)

// Identity is a user and a group that the process becomes once a host is mounted.
type Identity struct {
	uid, gid int // -1: no change
}

// NewIdentity returns the identity that changes nothing.
func NewIdentity() Identity { return Identity{-1, -1} }

// SetGroup sets the group, by its name.
func (id *Identity) SetGroup(name string) error {
	g, err := user.LookupGroup(name)
	if err != nil {
		return fault.Wrap(fault.Invalid, err)
	}
	id.gid, err = strconv.Atoi(g.Gid)
	return err
}

// SetUser sets the user, by its name.
func (id *Identity) SetUser(name string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return fault.Wrap(fault.Invalid, err)
	}
	id.uid, err = strconv.Atoi(u.Uid)
	return err
}

// ChangesUser reports whether the process becomes another user.
func (id Identity) ChangesUser() bool { return id.uid >= 0 }

// Assume makes the process the user and the group, for good: all threads, with no way back.
func (id Identity) Assume() error {
	if id.gid >= 0 {
		if err := errors.Join(syscall.Setgroups([]int{id.gid}), syscall.Setgid(id.gid)); err != nil {
			return fault.New(fault.Denied, "become group %d: %w", id.gid, err)
		}
	}
	if id.uid >= 0 {
		if err := syscall.Setuid(id.uid); err != nil {
			return fault.New(fault.Denied, "become user %d: %w", id.uid, err)
		}
	}
	return nil
}
