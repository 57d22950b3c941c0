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

// readSpans is one reader: it takes spans until there are no more.
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

// readSpan reads a span window by window and passes each on.
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

// waitForPace waits until n bytes may be asked of the source. Nothing is held meanwhile but the
// connection that an earlier window left open.
func (c *copier) waitForPace(ctx context.Context, n int64) error {
	if c.Pace == nil || n == 0 {
		return nil
	}
	defer c.times.pace.addSince(time.Now())
	return c.Pace(ctx, n)
}

func (c *copier) takeWindow(ctx context.Context, r disk.Range) (*window, error) {
	defer c.times.wait.addSince(time.Now())
	return c.windows.take(ctx, r)
}

// sendWindow gives a full window to the writers.
func (c *copier) sendWindow(ctx context.Context, filled chan<- *window, w *window) error {
	defer c.times.wait.addSince(time.Now())
	return send(ctx, filled, w)
}

// A pass reads the data of one span from front to back.
type spanReader struct {
	c      *copier
	stream func(context.Context, disk.Range) (io.ReadCloser, error)
	todo   []disk.Range  // data not read yet; the first is what body delivers
	body   io.ReadCloser // open on todo[0]; nil when no stream is open
}

func newSpanReader(c *copier, s span) *spanReader {
	return &spanReader{c: c, stream: c.src.Hints().Stream, todo: s.data}
}

// dataIn returns the number of bytes of r to read.
func (p *spanReader) dataIn(r disk.Range) (n int64) {
	for _, d := range p.todo {
		n += d.Intersect(r).Len
	}
	return n
}

// openStream opens the stream of the next data, if there is any and it is not open.
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

// fillWindow fills the window: data from the source, zeros between.
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

// readPart reads part, which is the front of todo[0], and takes it off.
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

func (p *spanReader) closeStream() error {
	if p.body == nil {
		return nil
	}
	err := p.body.Close()
	p.body = nil
	return err
}

// zeroGrain is the smallest run of zeros that is kept out of the image: a qcow2 cluster,
// and a length any file system can leave as a hole.
const zeroGrain = 64 << 10

var zeros [zeroGrain]byte

// hashWindow finds the parts of the window that are not zero, and hashes its chunks, while they are in the
// processor's cache.
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

// findData adds the grains of chunk that are not zero to w.data.
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
