package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// LockImages locks a file next to vm's partial folder. The file exists while it is locked, and may remain
// after a
// crash. The lock is a POSIX lock of the open file description (F_OFD_SETLK): NFS and cluster file
// systems
// support it, and a stopped process keeps it. On a file system without locks, LockImages always succeeds.
func (t *Target) LockImages(_ context.Context, vm *inventory.VM) (release func() error, err error) {
	path := filepath.Join(t.root, lockPrefix+sourceID(vm)+lockSuffix)
	f, err := openLocked(path)
	if err != nil {
		return nil, fmt.Errorf("lock the images of VM %s: %w", vm.Name, ioFault(err))
	}
	return func() error { return removeAndClose(f) }, nil
}

// Name and content of the lock file.
const (
	lockPrefix = ".decamp-" // hidden, so that users do not mistake it for a part of a VM
	lockSuffix = ".lock"    // after the sourceID

	holderMax = 256 // maximum length of the holder's description in bytes
)

// openLocked opens and locks the file, and writes this process into it. The lock belongs to the file,
// not to its
// name, and removeAndClose removes the name. So openLocked verifies after locking that the name still
// refers to the file, and retries if not.
func openLocked(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		err = lockFile(f)
		if err == nil && atomicfile.IsAt(f, path) {
			writeHolder(f)
			return f, nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// lockFile locks f without waiting. If another process has the lock, the error is targets.ErrLocked.
func lockFile(f *os.File) error {
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return fault.New(fault.Transient, "%w: %s", targets.ErrLocked, readHolder(f)).
			WithHint("wait until that process has ended, or end it and run the same command again, which continues with its images; to find the process: fuser -v %s", fault.Quote(f.Name()))
	}
	return nil // ENOLCK, EOPNOTSUPP: a file system without locks
}

// writeHolder writes the process ID and the host name to a locked file. Errors are ignored, because
// only
// messages contain this text.
func writeHolder(f *os.File) {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	_ = f.Truncate(0)
	_, _ = f.WriteAt(fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host), 0)
}

// readHolder returns the description that writeHolder wrote, or a placeholder.
func readHolder(f *os.File) string {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, holderMax))
	if who := strings.TrimSpace(string(text)); err == nil && who != "" {
		return who
	}
	return "an unknown process"
}

// removeAndClose removes the lock file and then closes it. While it is locked, its name cannot refer to
// the file of
// another process.
func removeAndClose(f *os.File) error {
	err := os.Remove(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(ioFault(err), f.Close())
}
