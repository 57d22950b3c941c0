package rawfile

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// lockFile locks an image exclusively, or fails with fault.Conflict. The lock belongs to the open file
// and not to the process. It ends when the file is closed, also by SIGKILL. If the file system has no
// locks, lockFile does nothing.
func lockFile(file *os.File) error {
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err := retryInterrupted(func() error { return unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &whole) })
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return fault.New(fault.Conflict, "image %s is in use by another process", file.Name()).
			WithHint("wait for it, or see which one it is: fuser -v %s", fault.Quote(file.Name()))
	}
	return nil // ENOLCK, EOPNOTSUPP: a file system without locks
}

// unlockFile releases the lock. Without it, a program that this process is just starting would keep the
// lock, because it has all open files until exec.
func unlockFile(file *os.File) {
	none := unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart}
	_ = retryInterrupted(func() error { return unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &none) }) // a file system without locks
}
