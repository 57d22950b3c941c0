package vmdk

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
)

// A chain is the layers of a disk, the youngest first. It is a layer itself: absent are
// the bytes that none of them has.
type chain []layer

func (c chain) size() int64 { return c[0].size() }

func (c chain) newCursor() cursor {
	w := &chainCursor{chain: c, below: make([]layerCursor, len(c))}
	for i, l := range c {
		w.below[i].cursor = l.newCursor()
	}
	return w
}

// chainCursor merges the layers' runs. Each layer's run is asked for once and kept until
// it is used up, however many pieces the layers above cut it into: a merge costs as much
// as there are runs.
type chainCursor struct {
	chain
	below []layerCursor
}

type layerCursor struct {
	cursor cursor
	last   Run // the last one
}

func (c *chainCursor) runAt(ctx context.Context, r disk.Range) (Run, error) {
	whole := r
	for i := range c.below {
		// A parent may be smaller than its child, whose disk was extended later: what
		// lies behind its end was never written, whatever its own parents have.
		size := c.chain[i].size()
		if r.Off >= size {
			break
		}
		r = r.Intersect(disk.Range{Len: size})
		run, err := c.below[i].runAt(ctx, r, whole.Intersect(disk.Range{Len: size}))
		if err != nil || run.Kind != Absent {
			return run, err
		}
		r = run.Range
	}
	return Run{Range: r}, nil
}

// runAt returns the run at the beginning of r. A new one is asked for as far as whole goes.
func (l *layerCursor) runAt(ctx context.Context, r, whole disk.Range) (Run, error) {
	if r.Off < l.last.Off || r.Off >= l.last.End() {
		run, err := l.cursor.runAt(ctx, whole)
		if err != nil {
			return Run{}, err
		}
		l.last = run
	}
	return l.last.clip(r), nil
}
