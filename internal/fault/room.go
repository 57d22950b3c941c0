package fault

import (
	"errors"
	"syscall"
)

// ErrNoRoom is wrapped by Full errors of a state directory: decamp cannot record its work. It is not
// the fault of a VM, so runs of a plan wait for space.
var ErrNoRoom = errors.New("no room")

// NoRoom returns the error for a full file system under dir, caused by err.
func NoRoom(dir string, err error) *Error {
	return New(Full, "%w under %s: %w", ErrNoRoom, dir, err).WithHint("free space under %s: waiting runs continue by themselves; repeat a failed command", dir)
}

// Room returns NoRoom(dir, err) if err is that of a full file system, else err.
func Room(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return NoRoom(dir, err)
	}
	return err
}
