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
	"github.com/decamp/decamp/internal/target"
)

// Open creates img in the VM's partial folder, or opens what a crash left of it.
func (t *Target) Open(_ context.Context, img target.Image) (disk.Target, bool, error) {
	if img.Format != target.Raw {
		return nil, false, unknownFormat(img)
	}
	if err := makeFolder(filepath.Dir(img.Path)); err != nil {
		return nil, false, err
	}
	left, err := leftover(img.Path)
	if err != nil {
		return nil, false, err
	}
	if left {
		f, err := rawfile.Open(img.Path, rawfile.Options{Size: img.Size})
		return f, false, err
	}
	f, err := rawfile.Create(img.Path, img.Size, rawfile.Options{})
	return f, true, err
}

// leftover reports whether there is an unfinished image at path. An empty one was
// created the moment before a crash and never got its size: it is removed.
func leftover(path string) (bool, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case info.Mode().IsRegular() && info.Size() == 0:
		return false, os.Remove(path)
	}
	return true, nil
}

// Read opens img for verification, past the page cache.
func (t *Target) Read(_ context.Context, img target.Image) (disk.Source, error) {
	if img.Format != target.Raw {
		return nil, unknownFormat(img)
	}
	path := img.Path
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		path = img.Final
	}
	return rawfile.OpenSource(path, rawfile.SourceOptions{Size: img.Size, Direct: true})
}

func unknownFormat(img target.Image) error {
	return fault.New(fault.Unsupported, "image %s: no format %q", img.Path, img.Format).
		WithHint("use %s", target.Raw)
}

// makeFolder makes a folder that QEMU may enter as its own user, and its name durable.
func makeFolder(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return ioFault(fmt.Errorf("make the VM's folder: %w", err))
	}
	return syncFolder(filepath.Dir(dir))
}
