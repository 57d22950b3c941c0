package vmdk

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
)

// A chain is the layers of a disk, the youngest first. It is a layer itself: absent are
// the bytes that none of them has.
type chain []layer

func (c chain) size() int64 { return c[0].size() }

func (c chain) cursor() cursor {
	w := &chainCursor{chain: c, below: make([]level, len(c))}
	for i, l := range c {
		w.below[i].cursor = l.cursor()
	}
	return w
}

// chainCursor merges the layers' runs. Each layer's run is asked for once and kept until
// it is used up, however many pieces the layers above cut it into: a merge costs as much
// as there are runs.
type chainCursor struct {
	chain
	below []level
}

type level struct {
	cursor cursor
	run    Run // the last one
}

func (c *chainCursor) run(ctx context.Context, r disk.Range) (Run, error) {
	whole := r
	for i := range c.below {
		// A parent may be smaller than its child, whose disk was extended later: what
		// lies behind its end was never written, whatever its own parents have.
		size := c.chain[i].size()
		if r.Off >= size {
			break
		}
		r = r.Intersect(disk.Range{Len: size})
		run, err := c.below[i].at(ctx, r, whole.Intersect(disk.Range{Len: size}))
		if err != nil || run.Kind != Absent {
			return run, err
		}
		r = run.Range
	}
	return Run{Range: r}, nil
}

// at returns the run at the beginning of r. A new one is asked for as far as whole goes.
func (l *level) at(ctx context.Context, r, whole disk.Range) (Run, error) {
	if r.Off < l.run.Off || r.Off >= l.run.End() {
		run, err := l.cursor.run(ctx, whole)
		if err != nil {
			return Run{}, err
		}
		l.run = run
	}
	return l.run.within(r), nil
}
