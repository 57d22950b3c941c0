package rawfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/diskspace"
	"github.com/decamp/decamp/internal/fault"
)

// newFault adds kind and remedy to an error of this image. r is the affected range.
func (f *File) newFault(verb string, r disk.Range, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	err = fmt.Errorf("%s image %s at %v: %w", verb, f.path, r, err)
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.Full, "%w", err).WithHint("%s", spaceHint(f.path))
	case errors.Is(err, unix.EFBIG):
		return fault.New(fault.Unsupported, "%w", err).
			WithHint("the file system of %s holds no file of %d bytes: use XFS, or a block device", filepath.Dir(f.path), f.size)
	}
	return storageFault(f.path, err)
}

// storageFault adds kind and remedy to an error of the storage of an image: it fails, was removed, or
// its file system has become read-only because of an error.
func storageFault(path string, err error) error {
	for _, errno := range []unix.Errno{unix.EIO, unix.ENODEV, unix.ENXIO, unix.EROFS, unix.ESTALE, unix.EUCLEAN} {
		if errors.Is(err, errno) {
			return fault.New(fault.Unreachable, "%w", err).
				WithHint("the storage of %s fails: see dmesg; when it is back, start again: it continues where it stopped", filepath.Dir(path))
		}
	}
	return err
}

// spaceHint returns the remedy for a full file system, with its free space.
func spaceHint(path string) string {
	folder := filepath.Dir(path)
	const again = "then start again: it continues where it stopped"
	left, err := diskspace.At(folder)
	if err != nil {
		return fmt.Sprintf("make room in %s (or raise the quota), %s", folder, again)
	}
	return fmt.Sprintf("make room in %s, which has %d bytes free (or raise the quota), %s",
		folder, left.Available, again)
}

// readFault adds kind and remedy to an error of opening an image for reading.
func readFault(err error) error {
	err = fmt.Errorf("open image: %w", err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "%w", err).WithHint("name an image that exists")
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Denied, "%w", err).WithHint("run as a user who may read it")
	}
	return err
}

// openFault adds kind and remedy to an error of opening an image for writing. err contains the path.
func openFault(verb, path string, err error) error {
	err = fmt.Errorf("%s image: %w", verb, err)
	switch {
	case errors.Is(err, os.ErrExist):
		return fault.New(fault.Conflict, "%w", err).WithHint("move %s away, or resume the run it belongs to", path)
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "%w", err).WithHint("create the folder first: mkdir -p %s", fault.Quote(filepath.Dir(path)))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fault.New(fault.Denied, "%w", err).WithHint("run as a user who may write to %s", filepath.Dir(path))
	case errors.Is(err, unix.EBUSY):
		return fault.New(fault.Conflict, "%w", err).WithHint("the device is mounted or part of another: lsblk %s", fault.Quote(path))
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.Full, "%w", err).WithHint("%s", spaceHint(path))
	}
	return err
}
