package fault

import (
	"errors"
	"syscall"
)

// ErrNoRoom is in the tree of a Full that is of a state directory: what decamp knows of its work
// cannot be put on record. That is no VM's fault: where many are moved they wait for room.
var ErrNoRoom = errors.New("no room")

// NoRoom returns the error for a full file system under dir, caused by err.
func NoRoom(dir string, err error) *Error {
	return New(Full, "%w under %s: %w", ErrNoRoom, dir, err).WithHint("free space under %s: waiting runs continue by themselves; repeat a failed command", dir)
}

// Room returns err, as NoRoom if the file system of dir was full.
func Room(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return NoRoom(dir, err)
	}
	return err
}
