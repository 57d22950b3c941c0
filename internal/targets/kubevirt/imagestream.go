package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// step is how much of an image is read at once, in bytes, and span how much is described at once.
const (
	readSize     = 1 << 20 // bytes per read of the image
	extentWindow = 1 << 30 // length of the range whose extents are queried at once, in bytes
)

// stream reads an image as a raw disk from front to back. It returns zeros for holes without reading
// them. Close can be
// called while another goroutine reads, as net/http does.
type stream struct {
	report func(sent int64) // receives the number of bytes read so far

	mu      sync.Mutex      // guards the fields below
	ctx     context.Context // context for reads of src
	alive   func()          // called after each read of src
	src     disk.Source     // the image, closed by Close
	offset  int64           // offset of the next byte that is not in buf
	extents []disk.Extent   // extents from offset on; empty if they must be queried
	buf     []byte          // readSize bytes, aligned for direct I/O
	rest    []byte          // part of buf that Read has not returned
	closed  bool            // set by Close
	err     error           // first error of reading the image, unless ctx ended
}

var _ io.ReadCloser = (*stream)(nil)

// openStream opens an image for an upload. A disk that CDI would mistake for another format is
// fault.Unsupported.
func openStream(ctx context.Context, d platform.Delivery, img targets.Image) (*stream, error) {
	src, err := d.Open(ctx, img)
	if err != nil {
		return nil, err
	}
	const remedy = "if you trust the guest, overwrite the first sector of the disk in the guest and migrate again; or select another target: libvirt, Proxmox VE or a folder"
	if err := platform.CheckRaw(ctx, src, "CDI", remedy); err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return &stream{ctx: ctx, src: src, buf: disk.AlignedMemory(readSize), report: func(int64) {}, alive: func() {}}, nil
}

// size returns the capacity of the disk in bytes.
func (s *stream) size() int64 { return s.src.Size() }

// setContext sets the context of further reads, and a function that is called after each read.
func (s *stream) setContext(ctx context.Context, alive func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx, s.alive = ctx, alive
}

// readError returns the error of reading the image, or nil.
func (s *stream) readError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// sentBytes returns the number of bytes that Read has returned.
func (s *stream) sentBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset - int64(len(s.rest))
}

// Read implements io.Reader. It reads the image in pieces of readSize bytes.
func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fs.ErrClosed
	}
	if len(s.rest) == 0 {
		if err := s.fillBuffer(); err != nil {
			return 0, err
		}
		s.alive()
		s.report(s.offset - int64(len(s.rest)))
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// fillBuffer reads the next piece, or fills it with zeros. mu must be held.
func (s *stream) fillBuffer() error {
	if s.offset == s.size() {
		return io.EOF
	}
	n := min(readSize, s.size()-s.offset)
	s.rest = s.buf[:n]
	if err := s.readRange(disk.Range{Off: s.offset, Len: n}); err != nil {
		s.rest = nil
		if s.ctx.Err() == nil { // not after a cancellation
			s.err = fmt.Errorf("read image: %w", err)
		}
		return err
	}
	s.offset += n
	for len(s.extents) > 0 && s.extents[0].End() <= s.offset {
		s.extents = s.extents[1:]
	}
	return nil
}

// readRange sets s.rest to the content of r. mu must be held.
func (s *stream) readRange(r disk.Range) (err error) {
	if len(s.extents) == 0 {
		if s.extents, err = s.src.Extents(s.ctx, disk.Range{Off: r.Off, Len: min(extentWindow, s.size()-r.Off)}); err != nil {
			return err
		}
	}
	if s.isHole(r) {
		clear(s.rest)
		return nil
	}
	return s.src.ReadAt(s.ctx, s.rest, r.Off)
}

// isHole reports whether the extents describe all of r as zeros. mu must be held.
func (s *stream) isHole(r disk.Range) bool {
	for _, e := range s.extents {
		if e.Kind != disk.Zero || e.Off >= r.End() {
			return false
		}
		if e.End() >= r.End() {
			return true
		}
	}
	return false
}

// Close closes the image. It can be called several times.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.src.Close()
}
