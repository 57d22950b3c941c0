package manifest

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// openLocked opens path for reading and writing and takes its lock, which a second
// process (or a second Open in this one) is refused. The lock goes with the file, not
// the name, so the name is looked up again once the lock is ours: Seal renames.
func openLocked(path string, flag int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|flag, 0o644)
		if err != nil {
			return nil, kindOfIO(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return nil, errors.Join(lockFault(err), f.Close())
		}
		if atomicfile.IsAt(f, path) {
			return f, nil
		}
		if err := atomicfile.Unlock(f); err != nil {
			return nil, err
		}
	}
}

func lockFault(err error) error {
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fault.New(fault.Conflict, "another decamp has it open").
			WithHint("wait for the other run of this VM to end, or stop it")
	}
	return err
}

// newFile opens an empty, locked file beside path that publish can put in its place.
// What a crashed run left under that name is overwritten.
func newFile(path string) (*os.File, error) {
	f, err := openLocked(path+".new", os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(kindOfIO(err), atomicfile.Unlock(f))
	}
	return f, nil
}

// removeFile removes a file that newFile made.
func removeFile(f *os.File) error { return errors.Join(os.Remove(f.Name()), atomicfile.Unlock(f)) }

// fdatasync makes f's content and length durable.
func fdatasync(f *os.File) error { return os.NewSyscallError("fdatasync", unix.Fdatasync(int(f.Fd()))) }

// kindOfIO gives the errors of the file system their kind.
func kindOfIO(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(fault.NotFound, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fault.Wrap(fault.Denied, err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return fault.New(fault.Full, "%w", err).WithHint("free space there; the run continues where it stopped")
	case errors.Is(err, unix.EIO), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ESTALE):
		return fault.New(fault.Unreachable, "%w", err).
			WithHint("the storage there fails: see dmesg; when it is back, start again: it continues where it stopped")
	}
	return err
}
