package overlay

import (
	"context"
	"io"
)

// A Slice is a part of an Overlay, a partition, as an io.ReaderAt and io.WriterAt.
type Slice struct {
	ctx  context.Context
	disk *Overlay
	off  int64
	size int64
}

// Slice returns size bytes from off on. ctx is that of all its reads and writes.
func (o *Overlay) Slice(ctx context.Context, off, size int64) *Slice {
	return &Slice{ctx, o, off, size}
}

// Size returns the slice's size in bytes.
func (s *Slice) Size() int64 { return s.size }

// ReadAt fills p, or fails.
func (s *Slice) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.size || int64(len(p)) > s.size-off {
		return 0, io.ErrUnexpectedEOF
	}
	if err := s.disk.ReadAt(s.ctx, p, s.off+off); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteAt writes all of p, or nothing.
func (s *Slice) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.size || int64(len(p)) > s.size-off {
		return 0, io.ErrShortWrite
	}
	if err := s.disk.WriteAt(s.ctx, p, s.off+off); err != nil {
		return 0, err
	}
	return len(p), nil
}
