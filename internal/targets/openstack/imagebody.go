package openstack

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/qcow2"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// step is how much of an image is read at once, in bytes, and span how much is described at once.
const (
	step = 1 << 20
	span = 1 << 30
)

// A body reads an image from front to back in the format that it is sent in, and hashes it. Whoever sends it
// may close it while it is being read, and read it once it is closed.
type body struct {
	format string

	mu     sync.Mutex // of what follows
	ctx    context.Context
	src    disk.Source
	in     io.Reader
	sums   map[string]hash.Hash // by Glance's names
	n      int64                // bytes given out
	closed bool
	err    error // that the image was not read for
}

// openBody opens an image to be sent.
func openBody(ctx context.Context, d platform.Delivery, img targets.Image, format string, tell func(int64)) (*body, error) {
	src, err := d.Open(ctx, img)
	if err != nil {
		return nil, err
	}
	b := &body{format: "raw", ctx: ctx, src: src, sums: map[string]hash.Hash{"sha512": sha512.New(), "sha256": sha256.New()}}
	if format == "raw" {
		if err := platform.CheckRaw(ctx, src, "the cloud", "send it as qcow2, which is the default: leave format=raw out"); err != nil {
			return nil, errors.Join(err, src.Close())
		}
		b.in = &rawReader{ctx: ctx, src: src, buf: disk.AlignedMemory(step), tell: tell}
		return b, nil
	}
	stream, err := qcow2.NewStream(ctx, src)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("describe image: %w", err), src.Close())
	}
	b.format, b.in = "qcow2", tellingReader{stream, tell}
	return b, nil
}

// tellingReader tells how far a stream is.
type tellingReader struct {
	*qcow2.Stream
	tell func(int64)
}

func (r tellingReader) Read(p []byte) (int, error) {
	n, err := r.Stream.Read(p)
	if n > 0 {
		r.tell(r.Done())
	}
	return n, err
}

// Read gives out what is next.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, fs.ErrClosed
	}
	n, err := b.in.Read(p)
	for _, h := range b.sums {
		_, _ = h.Write(p[:n]) // hashes do not fail
	}
	b.n += int64(n)
	if err != nil && err != io.EOF && b.ctx.Err() == nil { // nobody asked it to end
		b.err = fmt.Errorf("read image: %w", err)
	}
	return n, err
}

// Close closes the image. It may be called again.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	return b.src.Close()
}

// broken is why the image could not be read; nil if it could.
func (b *body) broken() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// size is how many bytes were given out.
func (b *body) size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// sum is the hash of what was given out, by one of Glance's algorithms; known says whether it is one of ours.
func (b *body) sum(algorithm string) (sum string, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.sums[algorithm]
	if h == nil {
		return "", false
	}
	return hex.EncodeToString(h.Sum(nil)), true
}

// rawReader reads a disk as it is. Holes are zeros that were not read.
type rawReader struct {
	ctx     context.Context
	src     disk.Source
	tell    func(int64)
	at      int64         // of the next byte that is not in buf
	extents []disk.Extent // from at on
	buf     []byte
	rest    []byte // of buf, not given out yet
}

func (r *rawReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// fill reads the next step, or makes up the zeros of a hole.
func (r *rawReader) fill() error {
	size := r.src.Size()
	if r.at == size {
		return io.EOF
	}
	n := min(step, size-r.at)
	if err := r.read(disk.Range{Off: r.at, Len: n}); err != nil {
		return err
	}
	r.rest = r.buf[:n]
	r.at += n
	for len(r.extents) > 0 && r.extents[0].End() <= r.at {
		r.extents = r.extents[1:]
	}
	r.tell(r.at)
	return nil
}

// read has buf hold what the disk has in a range.
func (r *rawReader) read(at disk.Range) (err error) {
	if len(r.extents) == 0 {
		if r.extents, err = r.src.Extents(r.ctx, disk.Range{Off: at.Off, Len: min(span, r.src.Size()-at.Off)}); err != nil {
			return err
		}
	}
	if r.hole(at) {
		clear(r.buf[:at.Len])
		return nil
	}
	return r.src.ReadAt(r.ctx, r.buf[:at.Len], at.Off)
}

// hole reports whether all of a range is described as zeros.
func (r *rawReader) hole(at disk.Range) bool {
	for _, e := range r.extents {
		if e.Kind != disk.Zero || e.Off >= at.End() {
			return false
		}
		if e.End() >= at.End() {
			return true
		}
	}
	return false
}
