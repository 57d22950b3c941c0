package blockcopy

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// writeWindows is the main loop of a writer. It returns when filled is closed.
func (c *copier) writeWindows(ctx context.Context, filled <-chan *window) error {
	for {
		select {
		case w, ok := <-filled:
			if !ok {
				return nil
			}
			if err := c.writeWindow(ctx, w); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writeWindow writes one window, records its chunks as written, and returns it to the pool.
func (c *copier) writeWindow(ctx context.Context, w *window) error {
	parts, err := c.rangesToWrite(w)
	for _, r := range parts {
		if err == nil {
			err = c.writeRange(ctx, w, r)
		}
	}
	if err == nil {
		err = c.ledger.addWritten(ctx, w, parts)
	}
	c.windows.put(w)
	return err
}

// rangesToWrite returns the ranges of the window to write. These are all chunks or, with Compare, those
// whose hash differs from the manifest. It removes the latter from the manifest.
func (c *copier) rangesToWrite(w *window) (parts []disk.Range, err error) {
	if !c.Compare {
		return []disk.Range{w.Range}, nil
	}
	var listed []int64
	for off := w.Off; off < w.End(); off += manifest.ChunkSize {
		r := disk.Range{Off: off, Len: min(manifest.ChunkSize, w.End()-off)}
		had, ok, err := c.Manifest.Hash(off / manifest.ChunkSize)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read manifest: %w", err)
		case ok && had == w.hashOf(r):
			continue
		case ok:
			listed = append(listed, off/manifest.ChunkSize)
		}
		parts = addRange(parts, r)
	}
	if err := c.Manifest.DropAll(listed); err != nil {
		return nil, fmt.Errorf("write manifest: %w", err)
	}
	return parts, nil
}

// writeRange writes a range of the window: its data with WriteAt, the rest with Zero.
func (c *copier) writeRange(ctx context.Context, w *window, part disk.Range) error {
	defer c.times.write.addSince(time.Now())
	pos := part.Off
	for _, r := range w.data {
		if r = r.Intersect(part); r.Empty() {
			continue
		}
		if err := c.zeroRange(ctx, disk.Range{Off: pos, Len: r.Off - pos}); err != nil {
			return err
		}
		if err := c.dst.WriteAt(ctx, w.buf[r.Off-w.Off:r.End()-w.Off], r.Off); err != nil {
			return fmt.Errorf("write %v: %w", r, err)
		}
		c.ledger.written.Add(r.Len)
		pos = r.End()
	}
	return c.zeroRange(ctx, disk.Range{Off: pos, Len: part.End() - pos})
}

// zeroRange zeroes r unless it is empty.
func (c *copier) zeroRange(ctx context.Context, r disk.Range) error {
	if r.Empty() {
		return nil
	}
	if err := c.dst.Zero(ctx, r); err != nil {
		return fmt.Errorf("zero %v: %w", r, err)
	}
	return nil
}
