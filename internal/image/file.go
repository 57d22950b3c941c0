package image

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/qcow2"
)

// Format is how an image is written.
type Format string

const (
	Raw   Format = "raw"   // byte n of the file is byte n of the disk
	QCOW2 Format = "qcow2" // qcow2 version 3, as package qcow2 writes it
)

// A File is an image on a file system. It is a Opener.
type File struct {
	Path   string // path of the image
	Format Format // format of the image
	Size   int64  // size of the disk, in bytes
}

// Open creates the image, or opens an unfinished one after a crash. created reports a new image, which
// reads as zeros everywhere.
func (f File) Open(context.Context) (t disk.Target, created bool, err error) {
	left, err := f.hasUnfinished()
	if err != nil {
		return nil, false, err
	}
	if left {
		t, err = f.openTarget()
	} else {
		t, err = f.createTarget()
	}
	return t, err == nil && !left, err
}

// createTarget creates a new image.
func (f File) createTarget() (disk.Target, error) {
	switch f.Format {
	case Raw:
		return targetOrNil(rawfile.Create(f.Path, f.Size, rawfile.Options{}))
	case QCOW2:
		return targetOrNil(qcow2.Create(f.Path, f.Size, qcow2.Options{}))
	}
	return nil, f.unknownFormat()
}

// openTarget opens an image that exists to continue writing.
func (f File) openTarget() (disk.Target, error) {
	switch f.Format {
	case Raw:
		return targetOrNil(rawfile.Open(f.Path, rawfile.Options{Size: f.Size}))
	case QCOW2:
		return targetOrNil(qcow2.Open(f.Path, qcow2.Options{Size: f.Size}))
	}
	return nil, f.unknownFormat()
}

// targetOrNil returns a nil interface if err is not nil, instead of an interface with a nil pointer.
func targetOrNil[T disk.Target](t T, err error) (disk.Target, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// sourceOrNil is targetOrNil for sources.
func sourceOrNil[S disk.Source](s S, err error) (disk.Source, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// hasUnfinished reports whether an unfinished image exists. An empty file is the result of a crash just
// after its creation; hasUnfinished removes it. It refuses anything but a regular file, because writing
// to a symbolic link would destroy its target.
func (f File) hasUnfinished() (bool, error) {
	info, err := os.Lstat(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.Mode().IsRegular():
		return false, Replaced(f.Path)
	case info.Size() == 0:
		return false, os.Remove(f.Path)
	}
	return true, nil
}

// Replaced returns the error for a path at which an earlier decamp process created a file or folder,
// and which is now something else.
func Replaced(path string) error {
	return fault.New(fault.Conflict, "%s is not a file of decamp any more: it was replaced", path).
		WithHint("check it (ls -ld %s), move it away, and run the same command again", fault.Quote(path))
}

// Read opens the finished image for verification: from the medium, past the page cache, if possible. An
// image without Finish is fault.Corrupt, if the format shows that.
func (f File) Read(context.Context) (disk.Source, error) {
	switch f.Format {
	case Raw:
		return sourceOrNil(rawfile.OpenSource(f.Path, rawfile.SourceOptions{Size: f.Size, Direct: true}))
	case QCOW2:
		src, err := sourceOrNil(qcow2.OpenSource(f.Path, qcow2.SourceOptions{Direct: true}))
		if err == nil && src.Size() != f.Size {
			err := fault.New(fault.Corrupt, "image %s is of a disk of %d bytes, expected %d", f.Path, src.Size(), f.Size)
			return nil, errors.Join(err, src.Close())
		}
		return src, err
	}
	return nil, f.unknownFormat()
}

// ReadUnfinished opens the image for the check before it is resumed, past the page cache. A raw image
// is read in the same way before and after Finish.
func (f File) ReadUnfinished(ctx context.Context) (disk.Source, error) {
	if f.Format != QCOW2 {
		return f.Read(ctx)
	}
	return sourceOrNil(qcow2.OpenUnfinished(f.Path, qcow2.SourceOptions{Direct: true}))
}

// unknownFormat returns the error for a Format other than Raw and QCOW2.
func (f File) unknownFormat() error {
	return fault.New(fault.Unsupported, "image %s: no format %q", f.Path, f.Format).
		WithHint("use %s or %s", Raw, QCOW2)
}
