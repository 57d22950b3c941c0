package matrix

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/manifest"
)

// prefix starts the names of all written files, so that the files of a killed run can
// be recognized.
const prefix = ".decamp-bench-"

// imageFile is one image to write. It implements image.Opener.
type imageFile struct {
	image.File
	sync bool // each write waits for the medium
}

// newImageFile returns an image of a disk in a folder. It removes files of an earlier
// run.
func newImageFile(folder, name string, size int64, sync bool) (imageFile, error) {
	p := imageFile{image.File{Path: filepath.Join(folder, prefix+name+".raw"), Format: image.Raw, Size: size}, sync}
	return p, p.removeFiles()
}

// Open is part of image.Opener.
func (p imageFile) Open(ctx context.Context) (disk.Target, bool, error) {
	t, created, err := p.File.Open(ctx)
	if err != nil || !p.sync {
		return t, created, err
	}
	return &syncTarget{Target: t}, created, nil
}

// toJob returns the job that fills the image as a migration does, with a manifest.
func (p imageFile) toJob() image.Job {
	return image.Job{Opener: p, Path: p.Path, Manifest: p.manifestPath(), Info: manifest.Info{Disk: "bench", Size: p.Size}}
}

// manifestPath returns the path of the manifest next to the image.
func (p imageFile) manifestPath() string { return p.Path + ".manifest" }

// removeFiles removes the image and its manifest, if they exist.
func (p imageFile) removeFiles() error {
	err := os.Remove(p.Path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, manifest.Remove(p.manifestPath()))
}

// syncBlock is the average write size of an ESXi host on NFS in bytes (published).
const syncBlock = 64 << 10

// syncTarget is a Target that behaves like a sync export: it splits writes into 64 KiB,
// and each waits until it is on the medium.
type syncTarget struct {
	disk.Target
	mu sync.Mutex // held during a write, so that one write waits at a time
}

// WriteAt is part of disk.Target.
func (w *syncTarget) WriteAt(ctx context.Context, p []byte, off int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(p) > 0 {
		n := min(len(p), syncBlock)
		if err := w.Target.WriteAt(ctx, p[:n], off); err != nil {
			return err
		}
		if err := w.Sync(ctx); err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}
