package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/qcow2"
	"github.com/decamp/decamp/internal/target"
)

// Open creates img in the VM's partial folder, or opens what a crash left of it.
func (t *Target) Open(_ context.Context, img target.Image) (disk.Target, bool, error) {
	if err := makeFolder(filepath.Dir(img.Path)); err != nil {
		return nil, false, err
	}
	left, err := leftover(img.Path)
	if err != nil {
		return nil, false, err
	}
	open := create
	if left {
		open = resume
	}
	image, err := open(img)
	if err != nil {
		return nil, false, err
	}
	return image, !left, nil
}

func create(img target.Image) (disk.Target, error) {
	switch img.Format {
	case target.Raw:
		return orNil(rawfile.Create(img.Path, img.Size, rawfile.Options{}))
	case target.QCOW2:
		return orNil(qcow2.Create(img.Path, img.Size, qcow2.Options{}))
	}
	return nil, unknownFormat(img)
}

func resume(img target.Image) (disk.Target, error) {
	switch img.Format {
	case target.Raw:
		return orNil(rawfile.Open(img.Path, rawfile.Options{Size: img.Size}))
	case target.QCOW2:
		return orNil(qcow2.Open(img.Path, qcow2.Options{Size: img.Size}))
	}
	return nil, unknownFormat(img)
}

// orNil keeps a nil pointer from becoming an interface that is not nil.
func orNil[T disk.Target](t T, err error) (disk.Target, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// leftover reports whether there is an unfinished image at path. An empty one was
// created the moment before a crash and never got its size: it is removed. What Create
// did not make is refused: writing to a symbolic link would destroy what it points to.
func leftover(path string) (bool, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.Mode().IsRegular():
		return false, replaced(path)
	case info.Size() == 0:
		return false, os.Remove(path)
	}
	return true, nil
}

func replaced(path string) error {
	return fault.New(fault.Conflict, "%s is not what decamp made there: somebody replaced it", path).
		WithHint("see what it is, move it away, and run the same command again: ls -ld %s", fault.Quote(path))
}

// Read opens img for verification, past the page cache.
func (t *Target) Read(_ context.Context, img target.Image) (disk.Source, error) {
	path := img.Path
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		path = img.Final
	}
	return OpenImage(path, img.Format, img.Size)
}

// ReadUnfinished opens img for the check before it is resumed, past the page cache. A raw
// image is the same before and after Finish.
func (t *Target) ReadUnfinished(ctx context.Context, img target.Image) (disk.Source, error) {
	if img.Format != target.QCOW2 {
		return t.Read(ctx, img)
	}
	src, err := qcow2.OpenUnfinished(img.Path, qcow2.SourceOptions{Direct: true})
	if err != nil {
		return nil, err
	}
	return src, nil
}

// OpenImage opens the finished image of a disk of size bytes, past the page cache where
// there is a way.
func OpenImage(path string, format target.Format, size int64) (disk.Source, error) {
	switch format {
	case target.Raw:
		src, err := rawfile.OpenSource(path, rawfile.SourceOptions{Size: size, Direct: true})
		if err != nil {
			return nil, err
		}
		return src, nil
	case target.QCOW2:
		src, err := qcow2.OpenSource(path, qcow2.SourceOptions{Direct: true})
		if err != nil {
			return nil, err
		}
		if src.Size() != size {
			err := fault.New(fault.Corrupt, "image %s is of a disk of %d bytes, expected %d", path, src.Size(), size)
			return nil, errors.Join(err, src.Close())
		}
		return src, nil
	}
	return nil, unknownFormat(target.Image{Path: path, Format: format})
}

func unknownFormat(img target.Image) error {
	return fault.New(fault.Unsupported, "image %s: no format %q", img.Path, img.Format).
		WithHint("use %s or %s", target.Raw, target.QCOW2)
}

// makeFolder makes a folder that QEMU may enter as its own user, and its name durable.
func makeFolder(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return isFolder(dir)
		}
		return ioFault(fmt.Errorf("make the VM's folder: %w", err))
	}
	return syncFolder(filepath.Dir(dir))
}

// isFolder refuses a link in the place of the VM's folder.
func isFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		return replaced(dir)
	}
	return err
}
