package manifest

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// openLocked opens path for reading and writing and locks it. If another process, or another Open of
// this process, has the lock, it fails with fault.Conflict. The lock belongs to the file and not to the
// name. Because Seal renames files, openLocked checks after locking that path still is that file.
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

// lockFault adds kind and remedy to an error of locking.
func lockFault(err error) error {
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fault.New(fault.Conflict, "another decamp has it open").
			WithHint("wait for the other run of this VM to end, or stop it")
	}
	return err
}

// newFile opens an empty, locked file beside path, which later replaces path. It overwrites what a
// crashed process left there.
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

// removeFile deletes, unlocks and closes a file of newFile.
func removeFile(f *os.File) error { return errors.Join(os.Remove(f.Name()), atomicfile.Unlock(f)) }

// fdatasync makes content and length of f durable.
func fdatasync(f *os.File) error { return os.NewSyscallError("fdatasync", unix.Fdatasync(int(f.Fd()))) }

// kindOfIO adds kind and remedy to an error of the file system. It returns nil for nil.
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
