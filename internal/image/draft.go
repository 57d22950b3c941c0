package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// A Draft is a File that is filled under a temporary name beside its final name: PATH.partial with the
// manifest PATH.partial.manifest. Publish gives both their final names. An image under its final name
// is always complete, with its manifest beside it:
//
//	x.partial  x.partial.manifest  unfinished, or complete
//	x.ready    x.partial.manifest  being published
//	x.ready    x.manifest          being published: the manifest is that of x.ready
//	x          x.manifest          published
//
// Without the intermediate name, the manifest of an earlier x could be mistaken for that of an
// x.partial without a manifest, which a crash may leave.
type Draft struct {
	Final   File // image under its final name
	Replace bool // replace an image that exists under the final name
}

// File returns the image under its temporary name.
func (d Draft) File() File {
	f := d.Final
	f.Path += ".partial"
	return f
}

// Manifest returns the path of the temporary image's manifest.
func (d Draft) Manifest() string { return manifestOf(d.File().Path) }

// manifestOf returns the path of the manifest of the image at path.
func manifestOf(path string) string { return path + ".manifest" }

// readyPath returns the name of the image while it is published.
func (d Draft) readyPath() string { return d.Final.Path + ".ready" }

// Prepare fails with fault.Conflict if the final name is taken. If a crash interrupted Publish, Prepare
// makes the image a draft again.
func (d Draft) Prepare() error {
	if err := d.checkFinal(); err != nil {
		return err
	}
	if !pathExists(d.readyPath()) {
		return nil
	}
	return d.restoreDraft()
}

// restoreDraft reverts the renames of Publish before the last one.
func (d Draft) restoreDraft() error {
	if !pathExists(d.Manifest()) {
		if err := os.Rename(manifestOf(d.Final.Path), d.Manifest()); err != nil {
			return ioFault(err)
		}
	}
	return ioFault(os.Rename(d.readyPath(), d.File().Path))
}

// checkFinal fails if the final name is taken and Replace is false, if it is not a regular file, or if
// its folder is missing.
func (d Draft) checkFinal() error {
	info, err := os.Lstat(d.Final.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.checkFolder()
	case err != nil:
		return ioFault(err)
	case !info.Mode().IsRegular():
		return fault.New(fault.Conflict, "%s exists and is not a file", d.Final.Path).
			WithHint("name a file that decamp may create")
	case !d.Replace:
		return existsError(d.Final.Path)
	}
	return nil
}

// checkFolder fails with fault.NotFound if the folder of the image is missing.
func (d Draft) checkFolder() error {
	folder := filepath.Dir(d.Final.Path)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return fault.New(fault.NotFound, "folder %s does not exist", folder).WithHint("mkdir -p %s", folder)
	}
	return nil
}

// existsError returns the fault.Conflict error for a final name that is taken.
func existsError(path string) error {
	return fault.New(fault.Conflict, "%s already exists", path).
		WithHint("choose another name, or replace it with --force")
}

// Publish gives the manifest and then the image their final names. Both are durable on return. They
// must be closed before. After an error they are a draft again, if possible.
func (d Draft) Publish() error {
	err := d.renameFiles()
	if err != nil && pathExists(d.readyPath()) {
		err = errors.Join(err, d.restoreDraft())
	}
	if err != nil {
		return fmt.Errorf("publish image: %w", err)
	}
	return nil
}

// renameFiles makes the renames of Publish in order, with a sync of the folder after each.
func (d Draft) renameFiles() error {
	if pathExists(d.Final.Path) && !d.Replace {
		return existsError(d.Final.Path) // before the manifest beside it is replaced
	}
	folder := filepath.Dir(d.Final.Path)
	if err := os.Rename(d.File().Path, d.readyPath()); err != nil {
		return ioFault(err)
	}
	if err := errors.Join(ioFault(atomicfile.Sync(folder)), os.Rename(d.Manifest(), manifestOf(d.Final.Path))); err != nil {
		return ioFault(err)
	}
	if err := errors.Join(ioFault(atomicfile.Sync(folder)), d.renameImage()); err != nil {
		return err
	}
	return ioFault(atomicfile.Sync(folder))
}

// renameImage gives the image its final name. It fails if the name was taken meanwhile. A file system
// without RENAME_NOREPLACE cannot detect that reliably.
func (d Draft) renameImage() error {
	from, to := d.readyPath(), d.Final.Path
	if d.Replace {
		return ioFault(os.Rename(from, to))
	}
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch {
	case errors.Is(err, unix.EEXIST):
		return existsError(to)
	case errors.Is(err, unix.EINVAL): // NFS has no such rename
		if pathExists(to) {
			return existsError(to)
		}
		return ioFault(os.Rename(from, to))
	}
	return ioFault(err)
}

// pathExists reports whether path names anything, also a broken link.
func pathExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ioFault adds kind and remedy to an error of the file system. It returns other errors, and nil,
// unchanged.
func ioFault(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.Full, "%w", err).WithHint("make room and run the same command again")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return fault.New(fault.Denied, "%w", err).WithHint("run as a user who may write there")
	}
	return err
}
