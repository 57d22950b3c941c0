package fault

import (
	"errors"
	"syscall"
)

// ErrNoRoom is in the tree of a Full that is of a state directory: what decamp knows of its work
// cannot be put on record. That is no VM's fault: where many are moved they wait for room.
var ErrNoRoom = errors.New("no room")

// NoRoom says that nothing can be written under dir because of err.
func NoRoom(dir string, err error) *Error {
	return New(Full, "%w under %s: %w", ErrNoRoom, dir, err).WithHint("free some under %s: what waits goes on by itself, a command is to be given again", dir)
}

// Room returns err, as NoRoom if the file system of dir was full.
func Room(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return NoRoom(dir, err)
	}
	return err
}
