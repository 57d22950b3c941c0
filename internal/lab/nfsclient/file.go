package nfsclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// File is an open, locked file. Its methods may be called concurrently.
type File struct {
	d      *Datastore // datastore of the file
	name   string     // path in the datastore, for errors
	handle Handle     // handle of the file
	fileID uint64     // number of the file on the server
	lock   *lock      // lock of the file, renewed until Close
}

// Create creates a file and locks it. An existing file is an error.
func (d *Datastore) Create(ctx context.Context, name string) (*File, error) {
	dir, base, err := d.resolveParent(ctx, name)
	if err != nil {
		return nil, err
	}
	h, a, err := d.createFile(ctx, dir, base, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d.openHandle(ctx, name, dir, h, a)
}

// Open opens a file and locks it. If another host holds the lock, Open waits until the lock is stale,
// or fails with ErrLocked.
func (d *Datastore) Open(ctx context.Context, name string) (*File, error) {
	dir, base, err := d.resolveParent(ctx, name)
	if err != nil {
		return nil, err
	}
	h, a, err := d.lookup(ctx, dir, base)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d.openHandle(ctx, name, dir, h, a)
}

// openHandle locks a regular file and verifies the lock on the server.
func (d *Datastore) openHandle(ctx context.Context, name string, dir, h Handle, a Attr) (*File, error) {
	if a.Type != Regular {
		return nil, fmt.Errorf("%s: type %d: %w", name, a.Type, fs.ErrInvalid)
	}
	l, err := d.acquireLock(ctx, dir, a.FileID)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &File{d: d, name: name, handle: h, fileID: a.FileID, lock: l}
	if err := l.verifyOnServer(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), l.release(ctx))
	}
	d.mu.Lock()
	d.open++
	d.mu.Unlock()
	return f, nil
}

// Close releases the lock. The file is closed even if an error is returned.
func (f *File) Close(ctx context.Context) error {
	f.d.mu.Lock()
	f.d.open--
	f.d.mu.Unlock()
	return wrapError(f.lock.release(ctx), f.name)
}

// FileID returns the number of the file on the server.
func (f *File) FileID() uint64 { return f.fileID }

// Truncate sets the length of the file, as vmkfstools does before it writes.
func (f *File) Truncate(ctx context.Context, size int64) error {
	if most := f.d.limits.MaxFileSize; most != 0 && uint64(size) > most {
		return fmt.Errorf("%s: %d bytes, the server takes files of at most %d", f.name, size, most)
	}
	if err := f.lock.lostError(); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	n := uint64(size)
	return wrapError(f.d.setAttr(ctx, f.handle, sattr{size: &n}), f.name)
}

// WriteAt writes p with FILE_SYNC, in calls of at most the transfer size. The data is durable when it
// returns.
func (f *File) WriteAt(ctx context.Context, p []byte, off int64) error {
	for len(p) > 0 {
		if err := f.lock.lostError(); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		n, _, err := f.d.writeOnce(ctx, f.handle, p[:min(len(p), f.d.writeSize())], off, fileSync)
		if err != nil {
			return fmt.Errorf("%s at %d: %w", f.name, off, err)
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// ReadAt fills p from off on. At the end of the file it returns io.EOF and the number of bytes read.
func (f *File) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n, err := f.d.readAt(ctx, f.handle, p, off)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%s at %d: %w", f.name, off+int64(n), err)
	}
	return n, err
}

// ReadAt reads a file without a lock, such as a descriptor or a log.
func (d *Datastore) ReadAt(ctx context.Context, name string, p []byte, off int64) (int, error) {
	h, _, err := d.resolvePath(ctx, name)
	if err != nil {
		return 0, err
	}
	return d.readAt(ctx, h, p, off)
}

// readAt fills p from off on, in calls of at most the transfer size.
func (d *Datastore) readAt(ctx context.Context, h Handle, p []byte, off int64) (done int, err error) {
	size := min(ioSize, int(d.limits.ReadMax))
	for done < len(p) {
		n, eof, err := d.readOnce(ctx, h, p[done:min(len(p), done+size)], off+int64(done))
		if err != nil {
			return done, err
		}
		done += n
		if eof && done < len(p) {
			return done, io.EOF
		}
	}
	return done, nil
}

// writeSize returns the number of bytes in one WRITE.
func (d *Datastore) writeSize() int { return min(d.cfg.WriteSize, int(d.limits.WriteMax)) }
