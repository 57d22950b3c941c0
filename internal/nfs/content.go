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

// A Content holds the bytes of one regular file. Its methods are called concurrently. A fault.Error is
// reported to the client by its Kind, see statusOfKind; any other error is an I/O error.
type Content interface {
	// Write owns b, also if it fails. It returns when b is in memory or on the medium: every later ReadAt
	// returns its bytes.
	Write(ctx context.Context, b *Buffer, off int64) error

	// ReadAt reads like io.ReaderAt: it returns fewer than len(p) bytes only at the end of the file.
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)

	// Truncate sets the size. Added bytes read as zeros.
	Truncate(ctx context.Context, size int64) error

	// Commit returns when all earlier writes are on the medium.
	Commit(ctx context.Context) error

	Size() int64 // Size returns the current length in bytes, including data that is only in memory.

	// Close is called once: after the file was removed and its last call ended, by Server.Forget, or by
	// Server.Close.
	Close() error
}

// A tryWriter is a Content that accepts most writes without waiting. The server then needs no goroutine
// for them.
type tryWriter interface {
	// TryWrite is Write if that need not wait. Otherwise it returns false and no error, and the caller
	// keeps b.
	TryWrite(b *Buffer, off int64) (taken bool, err error)
}

// osContent is the Content of a plain file: reads and writes go to the file in the export.
type osContent struct{ *os.File }

// Write is part of Content.
func (p osContent) Write(_ context.Context, b *Buffer, off int64) error {
	defer b.Release()
	_, err := p.WriteAt(b.Bytes(), off)
	if isErrno(err, syscall.EBADF) { // the file is open for reading only
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

// isErrno reports whether err is or wraps errno.
func isErrno(err error, errno syscall.Errno) bool { return errors.Is(err, errno) }

// isEnd reports whether a read reached the end of the file. A file that was closed meanwhile is not an
// end.
func isEnd(err error) bool { return errors.Is(err, io.EOF) && !errors.Is(err, fs.ErrClosed) }
