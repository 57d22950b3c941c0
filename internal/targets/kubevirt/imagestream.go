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
	step = 1 << 20
	span = 1 << 30
)

// A stream reads an image from front to back as the raw disk it holds. Holes are zeros that were not
// read. Whoever sends it may close it while it is being read, and read it once it is closed.
type stream struct {
	tell func(sent int64)

	mu      sync.Mutex // of what follows
	ctx     context.Context
	alive   func() // is called for each piece that is read
	src     disk.Source
	at      int64         // of the next byte that is not in buf
	extents []disk.Extent // from at on
	buf     []byte
	rest    []byte // of buf, not given out yet
	closed  bool
	err     error // that the image was not read for
}

var _ io.ReadCloser = (*stream)(nil)

// openStream opens an image to be sent.
func openStream(ctx context.Context, d platform.Delivery, img targets.Image) (*stream, error) {
	src, err := d.Open(ctx, img)
	if err != nil {
		return nil, err
	}
	const remedy = "if the guest is trusted, overwrite the first sector of its disk there, and migrate again; or choose another target: libvirt, Proxmox VE, a folder"
	if err := platform.CheckRaw(ctx, src, "CDI", remedy); err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return &stream{ctx: ctx, src: src, buf: disk.AlignedMemory(step), tell: func(int64) {}, alive: func() {}}, nil
}

func (s *stream) size() int64 { return s.src.Size() }

// watch has reads end with ctx, and alive told of each.
func (s *stream) watch(ctx context.Context, alive func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx, s.alive = ctx, alive
}

// broken is why the image could not be read; nil if it could.
func (s *stream) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// sent is how many bytes were given out.
func (s *stream) sent() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at - int64(len(s.rest))
}

// Read gives out what was read in one piece of the size that suits the medium.
func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fs.ErrClosed
	}
	if len(s.rest) == 0 {
		if err := s.fill(); err != nil {
			return 0, err
		}
		s.alive()
		s.tell(s.at - int64(len(s.rest)))
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// fill reads the next step, or makes up the zeros of a hole.
func (s *stream) fill() error {
	if s.at == s.size() {
		return io.EOF
	}
	n := min(step, s.size()-s.at)
	s.rest = s.buf[:n]
	if err := s.read(disk.Range{Off: s.at, Len: n}); err != nil {
		s.rest = nil
		if s.ctx.Err() == nil { // nobody asked it to end
			s.err = fmt.Errorf("read image: %w", err)
		}
		return err
	}
	s.at += n
	for len(s.extents) > 0 && s.extents[0].End() <= s.at {
		s.extents = s.extents[1:]
	}
	return nil
}

// read has rest hold what the image has in r.
func (s *stream) read(r disk.Range) (err error) {
	if len(s.extents) == 0 {
		if s.extents, err = s.src.Extents(s.ctx, disk.Range{Off: r.Off, Len: min(span, s.size()-r.Off)}); err != nil {
			return err
		}
	}
	if s.hole(r) {
		clear(s.rest)
		return nil
	}
	return s.src.ReadAt(s.ctx, s.rest, r.Off)
}

// hole reports whether all of r is described as zeros.
func (s *stream) hole(r disk.Range) bool {
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

// Close closes the image. It may be called again.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.src.Close()
}
