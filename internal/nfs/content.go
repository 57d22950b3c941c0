package nfs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Content is the bytes of one regular file. Its methods are called concurrently. An error
// that is a fault tells the client what its Kind means, anything else is an I/O error.
type Content interface {
	// Write owns b and returns when the bytes are held: every later ReadAt sees them.
	Write(ctx context.Context, b *Buffer, off int64) error

	// ReadAt reads like io.ReaderAt: fewer than len(p) bytes at the end only.
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)

	// Truncate sets the size. What is new reads as zeros.
	Truncate(ctx context.Context, size int64) error

	// Commit returns when everything written before is on the medium.
	Commit(ctx context.Context) error

	Size() int64

	// Close is called when the file was removed, or the server closes.
	Close() error
}

// A Content that is an eager takes most writes without making anybody wait, which spares
// each a goroutine.
type tryWriter interface {
	// TryWrite is Write if that takes no waiting. Otherwise it reports false, without an
	// error, and b stays the caller's.
	TryWrite(b *Buffer, off int64) (taken bool, err error)
}

// plain is the Content of a file that is itself, written through to the system.
type osContent struct{ *os.File }

// Write is part of Content.
func (p osContent) Write(_ context.Context, b *Buffer, off int64) error {
	defer b.Release()
	_, err := p.WriteAt(b.Bytes(), off)
	if isErrno(err, syscall.EBADF) { // it could only be opened for reading
		return statusAcces
	}
	return err
}

// ReadAt is part of Content.
func (p osContent) ReadAt(_ context.Context, b []byte, off int64) (int, error) {
	return p.File.ReadAt(b, off)
}

// Truncate is part of Content.
func (p osContent) Truncate(_ context.Context, size int64) error {
	err := p.File.Truncate(size)
	if isErrno(err, syscall.EINVAL) || isErrno(err, syscall.EBADF) {
		return statusAcces
	}
	return err
}

// Commit is part of Content.
func (p osContent) Commit(context.Context) error {
	raw, err := p.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Fdatasync(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// Size is part of Content.
func (p osContent) Size() int64 {
	info, err := p.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

func isErrno(err error, errno syscall.Errno) bool { return errors.Is(err, errno) }

// isEnd reports whether a read came to the end of the file.
func isEnd(err error) bool { return errors.Is(err, io.EOF) && !errors.Is(err, fs.ErrClosed) }
