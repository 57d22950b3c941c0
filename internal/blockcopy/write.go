package blockcopy

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/disk"
)

// write is one writer: it empties windows until there are no more.
func (c *copier) write(ctx context.Context, filled <-chan *window) error {
	for {
		select {
		case w, ok := <-filled:
			if !ok {
				return nil
			}
			if err := c.empty(ctx, w); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// empty writes one window, gives it back and books its chunks as held.
func (c *copier) empty(ctx context.Context, w *window) error {
	err := c.put(ctx, w)
	if err == nil {
		err = c.ledger.hold(ctx, w)
	}
	c.windows.put(w)
	return err
}

// put gives the target the window: its data as writes, the rest as zeros.
func (c *copier) put(ctx context.Context, w *window) error {
	defer c.times.write.since(time.Now())
	pos := w.Off
	for _, r := range w.data {
		if err := c.zero(ctx, disk.Range{Off: pos, Len: r.Off - pos}); err != nil {
			return err
		}
		if err := c.dst.WriteAt(ctx, w.buf[r.Off-w.Off:r.End()-w.Off], r.Off); err != nil {
			return fmt.Errorf("write %v: %w", r, err)
		}
		c.ledger.written.Add(r.Len)
		pos = r.End()
	}
	return c.zero(ctx, disk.Range{Off: pos, Len: w.End() - pos})
}

func (c *copier) zero(ctx context.Context, r disk.Range) error {
	if r.Empty() {
		return nil
	}
	if err := c.dst.Zero(ctx, r); err != nil {
		return fmt.Errorf("zero %v: %w", r, err)
	}
	return nil
}
