package rawfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
)

// SourceOptions determine how an image is read. The zero value suits nearly all uses.
type SourceOptions struct {
	// Size is the size of the disk in bytes. 0 is the size of the file or device.
	Size int64

	// Direct reads from the medium, past the page cache, if possible. Source.Medium returns the method.
	Direct bool
}

// A Source reads a raw image. It is a disk.Source.
type Source struct {
	path     string      // path of the image, for errors
	size     int64       // size of the disk in bytes
	cached   *os.File    // file that is read through the page cache
	direct   *os.File    // O_DIRECT; nil if it is not requested, or refused
	drop     bool        // drop pages before each read, and verify that
	unproven atomic.Bool // a read may have come from the page cache
	memory   bool        // the file is in memory and has no other medium
	buffers  *bufferPool // buffers for direct reads into memory that is not aligned
}

// OpenSource opens an image, or a block device, for reading.
func OpenSource(path string, o SourceOptions) (*Source, error) {
	// O_NONBLOCK: opening a pipe would wait for its writer for ever.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, readFault(err)
	}
	size, err := imageSize(file, o.Size)
	if err != nil {
		_ = file.Close() // nothing was done with it
		return nil, err
	}
	s := &Source{path: path, size: size, cached: file, buffers: newBuffers(), memory: inMemory(file)}
	if o.Direct && !s.memory {
		s.bypassCache()
	}
	return s, nil
}

// Size returns the disk's size in bytes.
func (s *Source) Size() int64 { return s.size }

// Hints returns requests of 1 MiB in four streams.
func (s *Source) Hints() disk.Hints {
	return disk.Hints{Request: 1 << 20, Streams: 4, Align: Align}
}

// Close releases the image.
func (s *Source) Close() error {
	var err error
	if s.direct != nil {
		err = s.direct.Close()
	}
	return errors.Join(err, s.cached.Close())
}

// Extents describes r by the file's holes.
func (s *Source) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := s.checkRead(ctx, r); err != nil {
		return nil, err
	}
	var out []disk.Extent
	add := func(off, end int64, k disk.Kind) {
		if end > off {
			out = append(out, disk.Extent{Range: disk.Range{Off: off, Len: end - off}, Kind: k})
		}
	}
	for off := r.Off; off < r.End(); {
		data := nextData(s.cached, disk.Range{Off: off, Len: r.End() - off})
		end := nextHole(s.cached, disk.Range{Off: data, Len: r.End() - data})
		add(off, data, disk.Zero)
		add(data, end, disk.Data)
		off = end
	}
	return out, ctx.Err()
}

// ReadAt fills p from off.
func (s *Source) ReadAt(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	if err := s.checkRead(ctx, r); err != nil {
		return err
	}
	if err := s.readFrom(p, off); err != nil {
		return storageFault(s.path, fmt.Errorf("read image %s at %v: %w", s.path, r, err))
	}
	return nil
}

// checkRead returns an error if r is outside the disk or ctx has ended.
func (s *Source) checkRead(ctx context.Context, r disk.Range) error {
	if err := disk.CheckRange(s.size, r); err != nil {
		return err
	}
	return ctx.Err()
}

// readFrom fills p from off in the way that was chosen for the source.
func (s *Source) readFrom(p []byte, off int64) error {
	if s.direct != nil {
		return s.readDirect(p, off)
	}
	if s.drop && !dropCached(s.cached, disk.Range{Off: off, Len: int64(len(p))}) {
		s.unproven.Store(true)
	}
	return readAll(s.cached, p, off)
}

// readDirect reads whole blocks into aligned memory, and everything else by a buffer.
func (s *Source) readDirect(p []byte, off int64) error {
	if off&(Align-1) == 0 && len(p)&(Align-1) == 0 && disk.IsAligned(p) {
		return readAll(s.direct, p, off)
	}
	b := s.buffers.take()
	defer s.buffers.give(b)
	for len(p) > 0 {
		start := off &^ (Align - 1)
		skip := int(off - start)
		n := min(len(p), bufferSize-skip)
		blocks := (skip + n + Align - 1) &^ (Align - 1)
		if err := readAtLeast(s.direct, b[:blocks], start, skip+n); err != nil {
			return err
		}
		copy(p[:n], b[skip:])
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// readAll fills p from off. A file that ends before is io.ErrUnexpectedEOF.
func readAll(file *os.File, p []byte, off int64) error { return readAtLeast(file, p, off, len(p)) }

// readAtLeast reads at least the first least bytes of p, and more if one call returns them.
func readAtLeast(file *os.File, p []byte, off int64, least int) error {
	for done := 0; done < least; {
		n, err := unix.Pread(int(file.Fd()), p[done:], off+int64(done))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("the file ends at %d: %w", off+int64(done), io.ErrUnexpectedEOF)
		}
		done += n
	}
	return nil
}
