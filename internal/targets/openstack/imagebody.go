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
	readSize     = 1 << 20 // bytes per read of the image
	extentWindow = 1 << 30 // length of the range whose extents are queried at once, in bytes
)

// body reads an image in the upload format and hashes it. Close can be called while another goroutine
// reads, as net/http
// does.
type body struct {
	format string // Glance's name of the format: "raw" or "qcow2"

	mu     sync.Mutex           // guards the fields below
	ctx    context.Context      // context for reads of src
	src    disk.Source          // the image, closed by Close
	in     io.Reader            // reads src in the upload format
	sums   map[string]hash.Hash // hashes of the returned bytes, by Glance's names of the algorithms
	sent   int64                // number of returned bytes
	closed bool                 // set by Close
	err    error                // error of reading the image, unless ctx ended
}

// openBody opens an image for an upload. report receives the number of bytes of the disk read so far.
// With format raw, a
// disk that a cloud could mistake for another format is fault.Unsupported.
func openBody(ctx context.Context, d platform.Delivery, img targets.Image, format string, tell func(int64)) (*body, error) {
	src, err := d.Open(ctx, img)
	if err != nil {
		return nil, err
	}
	b := &body{format: "raw", ctx: ctx, src: src, sums: map[string]hash.Hash{"sha512": sha512.New(), "sha256": sha256.New()}}
	if format == "raw" {
		if err := platform.CheckRaw(ctx, src, "the cloud", "send it as qcow2, which is the default: remove format=raw"); err != nil {
			return nil, errors.Join(err, src.Close())
		}
		b.in = &rawReader{ctx: ctx, src: src, buf: disk.AlignedMemory(readSize), report: tell}
		return b, nil
	}
	stream, err := qcow2.NewStream(ctx, src)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("describe image: %w", err), src.Close())
	}
	b.format, b.in = "qcow2", progressReader{stream, tell}
	return b, nil
}

// progressReader reports the progress of a qcow2 stream after each read.
type progressReader struct {
	*qcow2.Stream
	report func(int64) // receives the number of bytes of the disk
}

// Read implements io.Reader.
func (r progressReader) Read(p []byte) (int, error) {
	n, err := r.Stream.Read(p)
	if n > 0 {
		r.report(r.Done())
	}
	return n, err
}

// Read implements io.Reader.
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
	b.sent += int64(n)
	if err != nil && err != io.EOF && b.ctx.Err() == nil { // not after a cancellation
		b.err = fmt.Errorf("read image: %w", err)
	}
	return n, err
}

// Close closes the image. It can be called several times.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	return b.src.Close()
}

// readError returns the error of reading the image, or nil.
func (b *body) readError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// size returns the number of bytes that Read has returned.
func (b *body) size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent
}

// sumBy returns the hash in hex by one of Glance's algorithms. known is false if decamp does not
// compute it.
func (b *body) sumBy(algorithm string) (sum string, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.sums[algorithm]
	if h == nil {
		return "", false
	}
	return hex.EncodeToString(h.Sum(nil)), true
}

// rawReader reads a disk as raw bytes. It returns zeros for holes without reading them.
type rawReader struct {
	ctx     context.Context // context for reads of src
	src     disk.Source     // the disk
	report  func(int64)     // receives the number of bytes read so far
	offset  int64           // offset of the next byte that is not in buf
	extents []disk.Extent   // extents from offset on; empty if they must be queried
	buf     []byte          // readSize bytes, aligned for direct I/O
	rest    []byte          // part of buf that Read has not returned
}

// Read implements io.Reader.
func (r *rawReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		if err := r.fillBuffer(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// fillBuffer reads the next piece, or fills it with zeros.
func (r *rawReader) fillBuffer() error {
	size := r.src.Size()
	if r.offset == size {
		return io.EOF
	}
	n := min(readSize, size-r.offset)
	if err := r.readRange(disk.Range{Off: r.offset, Len: n}); err != nil {
		return err
	}
	r.rest = r.buf[:n]
	r.offset += n
	for len(r.extents) > 0 && r.extents[0].End() <= r.offset {
		r.extents = r.extents[1:]
	}
	r.report(r.offset)
	return nil
}

// readRange sets r.buf to the content of a range.
func (r *rawReader) readRange(at disk.Range) (err error) {
	if len(r.extents) == 0 {
		if r.extents, err = r.src.Extents(r.ctx, disk.Range{Off: at.Off, Len: min(extentWindow, r.src.Size()-at.Off)}); err != nil {
			return err
		}
	}
	if r.isHole(at) {
		clear(r.buf[:at.Len])
		return nil
	}
	return r.src.ReadAt(r.ctx, r.buf[:at.Len], at.Off)
}

// isHole reports whether the extents describe all of a range as zeros.
func (r *rawReader) isHole(at disk.Range) bool {
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
