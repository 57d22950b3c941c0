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

// Open creates img in the VM's partial folder, or opens the unfinished image there.
func (t *Target) Open(ctx context.Context, img targets.Image) (disk.Target, bool, error) {
	if err := makeFolder(filepath.Dir(img.Path)); err != nil {
		return nil, false, err
	}
	return imageFile(img, img.Path).Open(ctx)
}

// Grow enlarges an unfinished image to img.Size.
func (t *Target) Grow(ctx context.Context, img targets.Image, least int64) error {
	return imageFile(img, img.Path).Grow(ctx, least)
}

// Read opens img for verification with direct I/O, at its current or its final path.
func (t *Target) Read(ctx context.Context, img targets.Image) (disk.Source, error) {
	path := img.Path
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		path = img.Final
	}
	return imageFile(img, path).Read(ctx)
}

// ReadUnfinished opens an unfinished image with direct I/O.
func (t *Target) ReadUnfinished(ctx context.Context, img targets.Image) (disk.Source, error) {
	return imageFile(img, img.Path).ReadUnfinished(ctx)
}

// imageFile returns the image file at path with img's format and size.
func imageFile(img targets.Image, path string) image.File {
	return image.File{Path: path, Format: img.Format, Size: img.Size}
}

// makeFolder creates a folder and syncs its parent. QEMU, which runs as another user, can read the
// folder. It succeeds
// if the folder exists.
func makeFolder(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return requireFolder(dir)
		}
		return ioFault(fmt.Errorf("make the VM's folder: %w", err))
	}
	return ioFault(atomicfile.Sync(filepath.Dir(dir)))
}

// requireFolder returns an error if dir is a symbolic link or a file.
func requireFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		return image.Replaced(dir)
	}
	return err
}
