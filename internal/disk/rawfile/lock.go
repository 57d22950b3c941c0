package rawfile

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// lockFile takes the exclusive lock on an image, or fails at once with fault.Conflict. It
// belongs to the open file, not to the process, and goes when the file is closed, also
// by kill -9.
func lockFile(file *os.File) error {
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err := retryInterrupted(func() error { return unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &whole) })
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return fault.New(fault.Conflict, "image %s is in use by another process", file.Name()).
			WithHint("wait for it, or see which one it is: fuser -v %s", fault.Quote(file.Name()))
	}
	return nil // ENOLCK, EOPNOTSUPP: a file system without locks
}

// unlockFile releases it. Closing alone would leave the lock with a program that this process is just
// starting, which has all open files until it runs.
func unlockFile(file *os.File) {
	none := unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart}
	_ = retryInterrupted(func() error { return unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &none) }) // a file system without locks
}
