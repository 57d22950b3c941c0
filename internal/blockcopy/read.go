package blockcopy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// readSpans is the main loop of a reader. It returns when spans is closed.
func (c *copier) readSpans(ctx context.Context, spans <-chan span, filled chan<- *window) error {
	for {
		select {
		case s, ok := <-spans:
			if !ok {
				return nil
			}
			if err := c.readSpan(ctx, s, filled); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readSpan reads a span window by window, and sends each window to the writers.
func (c *copier) readSpan(ctx context.Context, s span, filled chan<- *window) error {
	p := newSpanReader(c, s)
	defer p.closeStream()
	for off := s.Off; off < s.End(); off += c.Window {
		r := disk.Range{Off: off, Len: min(c.Window, s.End()-off)}
		if err := c.waitForPace(ctx, p.dataIn(r)); err != nil {
			return err
		}
		// Wait for the source first and for memory second: a reader that waits for its
		// turn on a connection must not hold a window that another needs to end its own.
		if err := p.openStream(ctx); err != nil {
			return err
		}
		w, err := c.takeWindow(ctx, r)
		if err != nil {
			return err
		}
		if err := p.fillWindow(ctx, w); err != nil {
			c.windows.put(w)
			return err
		}
		c.hashWindow(w)
		if err := c.sendWindow(ctx, filled, w); err != nil {
			c.windows.put(w)
			return err
		}
	}
	return nil
}

// waitForPace waits until n bytes may be requested from the source. The reader holds no window
// meanwhile, only a connection that an earlier window left open.
func (c *copier) waitForPace(ctx context.Context, n int64) error {
	if c.Pace == nil || n == 0 {
		return nil
	}
	defer c.times.pace.addSince(time.Now())
	return c.Pace(ctx, n)
}

// takeWindow waits for an empty window, and counts the time.
func (c *copier) takeWindow(ctx context.Context, r disk.Range) (*window, error) {
	defer c.times.wait.addSince(time.Now())
	return c.windows.take(ctx, r)
}

// sendWindow sends a full window to the writers, and counts the time.
func (c *copier) sendWindow(ctx context.Context, filled chan<- *window, w *window) error {
	defer c.times.wait.addSince(time.Now())
	return send(ctx, filled, w)
}

// A spanReader reads the data of one span from front to back. It is not safe for concurrent use.
type spanReader struct {
	c *copier // copy that the span belongs to
	// Hints.Stream of the source; nil if ReadAt is equally fast
	stream func(context.Context, disk.Range) (io.ReadCloser, error)
	todo   []disk.Range  // data that is not read yet; body is a stream of the first range
	body   io.ReadCloser // open stream of todo[0]; nil if missing
}

// newSpanReader returns a reader at the beginning of s.
func newSpanReader(c *copier, s span) *spanReader {
	return &spanReader{c: c, stream: c.src.Hints().Stream, todo: s.data}
}

// dataIn returns the number of bytes in r that are still to be read.
func (p *spanReader) dataIn(r disk.Range) (n int64) {
	for _, d := range p.todo {
		n += d.Intersect(r).Len
	}
	return n
}

// openStream opens a stream of the next data, unless it is open, the source has no streams, or no data
// is left.
func (p *spanReader) openStream(ctx context.Context) error {
	if p.stream == nil || p.body != nil || len(p.todo) == 0 {
		return nil
	}
	defer p.c.times.read.addSince(time.Now())
	body, err := p.stream(ctx, p.todo[0])
	if err != nil {
		return fmt.Errorf("read %v: %w", p.todo[0], err)
	}
	p.body = body
	return nil
}

// fillWindow fills the window with data of the source, and zeros between the data.
func (p *spanReader) fillWindow(ctx context.Context, w *window) error {
	pos := w.Off
	for len(p.todo) > 0 {
		part := p.todo[0].Intersect(w.Range)
		if part.Empty() {
			break
		}
		clear(w.buf[pos-w.Off : part.Off-w.Off])
		if err := p.readPart(ctx, w.buf[part.Off-w.Off:part.End()-w.Off], part); err != nil {
			return fmt.Errorf("read %v: %w", part, err)
		}
		pos = part.End()
	}
	clear(w.buf[pos-w.Off:])
	return nil
}

// readPart reads part, which must be at the beginning of todo[0], into b and removes it from todo.
func (p *spanReader) readPart(ctx context.Context, b []byte, part disk.Range) error {
	if err := p.openStream(ctx); err != nil {
		return err
	}
	defer p.c.times.read.addSince(time.Now())
	var err error
	if p.body != nil {
		_, err = io.ReadFull(p.body, b)
	} else {
		err = p.c.src.ReadAt(ctx, b, part.Off)
	}
	if err != nil {
		return err
	}
	p.c.ledger.read.Add(part.Len)
	p.todo[0] = disk.Range{Off: part.End(), Len: p.todo[0].End() - part.End()}
	if p.todo[0].Empty() {
		p.todo = p.todo[1:]
		return p.closeStream()
	}
	return nil
}

// closeStream closes the stream, if one is open.
func (p *spanReader) closeStream() error {
	if p.body == nil {
		return nil
	}
	err := p.body.Close()
	p.body = nil
	return err
}

// zeroGrain is the smallest run of zeros that is not written, in bytes: a qcow2 cluster, and a length
// that any file system can leave as a hole.
const zeroGrain = 64 << 10

// zeros is compared with grains; it is never written.
var zeros [zeroGrain]byte

// hashWindow finds the parts of the window that are not zero, and hashes its chunks while they are in
// the processor's cache.
func (c *copier) hashWindow(w *window) {
	defer c.times.hash.addSince(time.Now())
	for off := int64(0); off < w.Len; off += manifest.ChunkSize {
		chunk := w.buf[off:min(off+manifest.ChunkSize, w.Len)]
		found := findData(w, chunk, w.Off+off)
		switch {
		case c.Manifest == nil:
		case found:
			w.hashes = append(w.hashes, manifest.HashOf(chunk))
		default:
			w.hashes = append(w.hashes, manifest.ZeroHash(len(chunk)))
		}
	}
}

// findData adds the grains of chunk that are not zero to w.data. It reports whether there are any.
func findData(w *window, chunk []byte, off int64) (found bool) {
	for len(chunk) > 0 {
		grain := chunk[:min(zeroGrain, len(chunk))]
		if !bytes.Equal(grain, zeros[:len(grain)]) {
			w.data = addRange(w.data, disk.Range{Off: off, Len: int64(len(grain))})
			found = true
		}
		chunk, off = chunk[len(grain):], off+int64(len(grain))
	}
	return found
}
