package overlay

import (
	"context"
	"io"
)

// A Slice is a range of an Overlay, usually a partition, as an io.ReaderAt and io.WriterAt.
type Slice struct {
	ctx  context.Context // context of all reads and writes
	disk *Overlay        // overlay that contains the range
	off  int64           // offset of the range
	size int64           // bytes of the range
}

// Slice returns the size bytes from off. All reads and writes use ctx.
func (o *Overlay) Slice(ctx context.Context, off, size int64) *Slice {
	return &Slice{ctx, o, off, size}
}

// Size returns the slice's size in bytes.
func (s *Slice) Size() int64 { return s.size }

// ReadAt fills p or fails. The range must be within the slice.
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
