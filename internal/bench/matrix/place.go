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

// prefix begins the names of all files that are written: what a killed run left is known by it.
const prefix = ".decamp-bench-"

// place is one image that is written to be measured. It is an image.Place.
type place struct {
	image.File
	sync bool // every write waits for the medium
}

// newPlace makes room for an image of a disk in a folder.
func newPlace(folder, name string, size int64, sync bool) (place, error) {
	p := place{image.File{Path: filepath.Join(folder, prefix+name+".raw"), Format: image.Raw, Size: size}, sync}
	return p, p.remove()
}

// Open is part of image.Place.
func (p place) Open(ctx context.Context) (disk.Target, bool, error) {
	t, created, err := p.File.Open(ctx)
	if err != nil || !p.sync {
		return t, created, err
	}
	return &waiting{Target: t}, created, nil
}

// job fills the image as a migration does, with a manifest beside it.
func (p place) job() image.Job {
	return image.Job{Place: p, Path: p.Path, Manifest: p.manifest(), Info: manifest.Info{Disk: "bench", Size: p.Size}}
}

func (p place) manifest() string { return p.Path + ".manifest" }

// remove takes away what there is of the image.
func (p place) remove() error {
	err := os.Remove(p.Path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, manifest.Remove(p.manifest()))
}

// syncBlock is what an ESXi host writes at a time onto NFS, on the average (published).
const syncBlock = 64 << 10

// waiting is a Target as an export with sync is: it takes 64 KiB at a time, and each waits until
// it is on the medium. One waits at a time.
type waiting struct {
	disk.Target
	mu sync.Mutex
}

// WriteAt is part of disk.Target.
func (w *waiting) WriteAt(ctx context.Context, p []byte, off int64) error {
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
