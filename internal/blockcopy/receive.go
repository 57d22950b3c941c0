package blockcopy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// Receive writes a disk that is delivered once into dst, which must be of the same size. It is Copy with
// another input:
//
//	receive    one goroutine     requests parts of the feed, leaves out those that the
//	                             manifest has, turns the gaps into zero runs
//	fill       Readers in turn   fills a window from a part, for example inflates it
//	hash, write, checkpoint      as in Copy
//
// To resume, the feed is delivered again from its start: parts that are durable are skipped without being
// filled. The caller ensures that it is the same disk at the same point in time. Options.Span is ignored;
// Readers default to one for each processor. At most 2 x Readers + 1 parts exist at the same time; the feed owns
// their memory.
//
// If the feed recalls its data (disk.ErrRecalled), all chunks are dropped from the manifest: no part of the
// image is known to be correct.
func Receive(ctx context.Context, feed disk.Feed, dst disk.Target, o Options) (Result, error) {
	if feed.Size() != dst.Size() {
		return Result{}, fmt.Errorf("source has %d bytes, target %d", feed.Size(), dst.Size())
	}
	c := newCopier(feed.Size(), disk.Hints{Streams: runtime.GOMAXPROCS(0)}, dst, o)
	res, err := c.runFeed(ctx, feed)
	if errors.Is(err, disk.ErrRecalled) && c.Manifest != nil {
		err = errors.Join(err, c.Manifest.Drop(0, c.Manifest.Chunks()))
	}
	return res, err
}

// runFeed starts the stages and waits for their end. If the feed fails, the parts that it delivered
// before are still written, so that the next attempt has less to copy.
func (c *copier) runFeed(ctx context.Context, feed disk.Feed) (Result, error) {
	g, gctx := errgroup.WithContext(ctx)
	parts := make(chan disk.Part, c.Readers) // closed by receive
	filled := make(chan *window, c.Writers)  // closed when receive and the last filler are done
	filling, fctx := errgroup.WithContext(gctx)
	var fed error
	filling.Go(func() error { defer close(parts); fed = c.receiveParts(fctx, feed, parts, filled); return nil })
	for range c.Readers {
		filling.Go(func() error { return c.fillParts(fctx, parts, filled) })
	}
	g.Go(func() error { defer close(filled); return filling.Wait() })
	for range c.Writers {
		g.Go(func() error { return c.writeWindows(gctx, filled) })
	}
	err := g.Wait()
	for p := range parts { // parts that no filler has received
		p.Release()
	}
	return c.finishCopy(ctx, feedError(err, fed))
}

// feedError combines the errors of the stages and of the feed. An error of a stage cancels the feed;
// that error of the feed is ignored.
func feedError(err, fed error) error {
	switch {
	case err == nil:
		return fed
	case fed == nil || errors.Is(fed, context.Canceled):
		return err
	}
	return errors.Join(fed, err)
}

// receiveParts requests the parts of the feed, and sends them and the zeros between them.
func (c *copier) receiveParts(ctx context.Context, feed disk.Feed, parts chan<- disk.Part, filled chan<- *window) error {
	var pos int64
	for {
		p, err := c.nextPart(ctx, feed)
		if err == io.EOF {
			return c.sendGap(ctx, disk.Range{Off: pos, Len: c.size - pos}, filled)
		}
		if err != nil {
			return err
		}
		r := p.Range()
		if err := c.sendPart(ctx, pos, p, parts, filled); err != nil {
			p.Release()
			return err
		}
		pos = r.End()
	}
}

// nextPart waits for the next part, and counts the time.
func (c *copier) nextPart(ctx context.Context, feed disk.Feed) (disk.Part, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	defer c.times.read.addSince(time.Now())
	return feed.Next(ctx, c.Window)
}

// sendPart sends the zeros from pos to p, and then p unless it is durable. Parts must be whole windows
// in ascending order.
func (c *copier) sendPart(ctx context.Context, pos int64, p disk.Part, parts chan<- disk.Part, filled chan<- *window) error {
	r := p.Range()
	whole := disk.Range{Off: r.Off, Len: min(c.Window, c.size-r.Off)}
	if r != whole || r.Off%c.Window != 0 || r.Off < pos {
		return fault.New(fault.Internal, "part %v follows byte %d: want windows of %d bytes in order", r, pos, c.Window)
	}
	if err := c.sendGap(ctx, disk.Range{Off: pos, Len: r.Off - pos}, filled); err != nil {
		return err
	}
	if c.isRangeListed(r) {
		c.ledger.addSkipped(r.Len)
		p.Release()
		return nil
	}
	return send(ctx, parts, p)
}

// isRangeListed reports whether the manifest has all chunks of r.
func (c *copier) isRangeListed(r disk.Range) bool {
	for off := r.Off; off < r.End(); off += manifest.ChunkSize {
		if !c.isListed(off) {
			return false
		}
	}
	return true
}

// sendGap sends the zeros of r without the chunks that are durable.
func (c *copier) sendGap(ctx context.Context, r disk.Range, filled chan<- *window) error {
	for off := r.Off; off < r.End(); {
		todo, ok := c.nextMissing(off, r.End())
		if !ok {
			return nil
		}
		if err := sendZero(ctx, filled, todo); err != nil {
			return err
		}
		off = todo.End()
	}
	return nil
}

// fillParts is the main loop of a filler. It returns when parts is closed.
func (c *copier) fillParts(ctx context.Context, parts <-chan disk.Part, filled chan<- *window) error {
	for p := range parts {
		err := c.fillPart(ctx, p, filled)
		p.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// fillPart fills a window from a part, and sends it to the writers.
func (c *copier) fillPart(ctx context.Context, p disk.Part, filled chan<- *window) error {
	w, err := c.takeWindow(ctx, p.Range())
	if err != nil {
		return err
	}
	if err := p.Fill(ctx, w.buf); err != nil {
		c.windows.put(w)
		return fmt.Errorf("read %v: %w", w.Range, err)
	}
	c.ledger.read.Add(w.Len)
	c.hashWindow(w)
	if err := c.sendWindow(ctx, filled, w); err != nil {
		c.windows.put(w)
		return err
	}
	return nil
}
