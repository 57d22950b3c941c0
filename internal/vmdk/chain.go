package vmdk

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
)

// A chain is the layers of a disk, the youngest first. It is a layer itself. Bytes that no layer
// contains are absent.
type chain []layer

// size returns the size of the youngest layer, which is the size of the disk.
func (c chain) size() int64 { return c[0].size() }

// newCursor returns a cursor that merges the cursors of all layers.
func (c chain) newCursor() cursor {
	w := &chainCursor{chain: c, below: make([]layerCursor, len(c))}
	for i, l := range c {
		w.below[i].cursor = l.newCursor()
	}
	return w
}

// A chainCursor merges the runs of the layers. It requests each run of a layer once and keeps it until
// it is used up, even if younger layers cut it into many pieces. The cost of a merge is proportional to
// the number of runs.
type chainCursor struct {
	chain
	below []layerCursor // cursors of the layers, in the order of chain
}

// A layerCursor is the cursor of one layer with the run that it returned last.
type layerCursor struct {
	cursor cursor // cursor of the layer
	last   Run    // last run; empty before the first call
}

// runAt queries the layers from the youngest to the oldest, and returns the first run that is not
// absent. An absent run shortens the range for the layers below it.
func (c *chainCursor) runAt(ctx context.Context, r disk.Range) (Run, error) {
	whole := r
	for i := range c.below {
		// A parent may be smaller than its child, whose disk was extended later. Bytes
		// after its end were never written, even if its own parents are larger.
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

// runAt returns the run at the beginning of r. If the last run does not contain r.Off, it requests a
// new one for all of whole, which contains r.
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
