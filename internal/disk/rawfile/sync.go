package rawfile

import (
	"context"
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/disk"
)

// Sync returns when all data that was written before it survives a power loss. After an error it fails
// in every later call, because the kernel reports a lost page only once. If the image is opened again,
// it continues from its manifest.
func (f *File) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	broken := f.broken
	f.mu.Unlock()
	if broken != nil {
		return broken
	}
	err := retryInterrupted(func() error { return unix.Fdatasync(int(f.cached.Fd())) })
	if err == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = f.newFault("sync", disk.Range{Len: f.size}, err)
	return f.broken
}

// Finish syncs the image and its folder and releases it.
func (f *File) Finish(ctx context.Context) error {
	if err := f.Sync(ctx); err != nil {
		return err
	}
	if !f.device {
		if err := f.cached.Sync(); err != nil { // times and owner, which fdatasync leaves out
			return f.newFault("sync", disk.Range{Len: f.size}, err)
		}
		if err := atomicfile.Sync(filepath.Dir(f.path)); err != nil {
			return err
		}
	}
	return f.Close()
}

// Close releases the image. Without Finish a power cut may remove writes since the last Sync.
func (f *File) Close() error {
	f.mu.Lock()
	closed := f.closed
	f.closed = true
	f.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if f.direct != nil {
		err = f.direct.Close()
	}
	unlockFile(f.cached)
	return errors.Join(err, f.cached.Close())
}
