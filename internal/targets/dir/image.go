package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/targets"
)

// Open creates img in the VM's partial folder, or opens what a crash left of it.
func (t *Target) Open(ctx context.Context, img targets.Image) (disk.Target, bool, error) {
	if err := makeFolder(filepath.Dir(img.Path)); err != nil {
		return nil, false, err
	}
	return file(img, img.Path).Open(ctx)
}

// Grow makes the image of a smaller disk one of img's.
func (t *Target) Grow(ctx context.Context, img targets.Image, least int64) error {
	return file(img, img.Path).Grow(ctx, least)
}

// Read opens img for verification, past the page cache.
func (t *Target) Read(ctx context.Context, img targets.Image) (disk.Source, error) {
	path := img.Path
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		path = img.Final
	}
	return file(img, path).Read(ctx)
}

// ReadUnfinished opens img for the check before it is resumed, past the page cache.
func (t *Target) ReadUnfinished(ctx context.Context, img targets.Image) (disk.Source, error) {
	return file(img, img.Path).ReadUnfinished(ctx)
}

// file is img where it stands now.
func file(img targets.Image, path string) image.File {
	return image.File{Path: path, Format: img.Format, Size: img.Size}
}

// makeFolder makes a folder that QEMU may enter as its own user, and its name durable.
func makeFolder(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return isFolder(dir)
		}
		return ioFault(fmt.Errorf("make the VM's folder: %w", err))
	}
	return ioFault(atomicfile.Sync(filepath.Dir(dir)))
}

// isFolder refuses a link in the place of the VM's folder.
func isFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		return image.Replaced(dir)
	}
	return err
}
