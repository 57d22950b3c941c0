package vmdk

import (
	"context"
	"sort"

	"github.com/decamp/decamp/internal/disk"
)

// A layer is what one descriptor, or one extent of it, knows of the disk: which bytes are
// data and where, which are zero, and which it leaves to its parent. It reads tables, never
// data. Its methods may be called concurrently.
type layer interface {
	// size returns how many bytes of the disk the layer speaks about.
	size() int64

	// cursor returns a new cursor. It does no I/O.
	newCursor() cursor
}

// A cursor returns the runs of a layer, usually from front to back, and caches the current table. One
// goroutine uses it.
type cursor interface {
	// run returns the run that r, which is not empty and lies within the layer, begins
	// with. It starts at r.Off, ends within r, and is not empty. It need not be the
	// longest: callers join what continues.
	runAt(ctx context.Context, r disk.Range) (Run, error)
}

// plain is a layer that is one run: a flat file, or nothing but zeros.
type plain struct{ Run }

func newZeros(n int64) plain { return plain{Run{Range: disk.Range{Len: n}, Kind: Zero}} }

func (p plain) size() int64       { return p.Len }
func (p plain) newCursor() cursor { return p }

func (p plain) runAt(_ context.Context, r disk.Range) (Run, error) { return p.clip(r), nil }

// parts are extents, one after the other.
type parts struct {
	layers []layer
	starts []int64 // start of each layer, and the end of the last
}

func newParts(layers []layer) layer {
	if len(layers) == 1 {
		return layers[0]
	}
	p := parts{layers: layers, starts: []int64{0}}
	for i, l := range layers {
		p.starts = append(p.starts, p.starts[i]+l.size())
	}
	return p
}

func (p parts) size() int64       { return p.starts[len(p.layers)] }
func (p parts) newCursor() cursor { return &partsCursor{parts: p, at: -1} }

// partsCursor stands on one of the parts.
type partsCursor struct {
	parts
	at    int // index of the part; -1 before the first call
	inner cursor
}

func (c *partsCursor) runAt(ctx context.Context, r disk.Range) (Run, error) {
	i := sort.Search(len(c.layers), func(i int) bool { return r.Off < c.starts[i+1] })
	if i != c.at {
		c.at, c.inner = i, c.layers[i].newCursor()
	}
	start := c.starts[i]
	local := disk.Range{Off: r.Off - start, Len: min(r.End(), c.starts[i+1]) - r.Off}
	run, err := c.inner.runAt(ctx, local)
	run.Off += start
	return run, err
}

// fitted is an extent whose file is larger or smaller than its line in the descriptor: the excess is
// cut off, the missing part is absent.
type fitted struct {
	layer
	bytes int64
}

// newFitted makes a layer of n bytes of l.
func newFitted(l layer, n int64) layer {
	if l.size() == n {
		return l
	}
	return fitted{layer: l, bytes: n}
}

func (f fitted) size() int64       { return f.bytes }
func (f fitted) newCursor() cursor { return fittedCursor{f.layer.newCursor(), f.layer.size()} }

type fittedCursor struct {
	inner cursor
	size  int64 // bytes that inner speaks about
}

func (c fittedCursor) runAt(ctx context.Context, r disk.Range) (Run, error) {
	if r.Off >= c.size {
		return Run{Range: r}, nil
	}
	return c.inner.runAt(ctx, r.Intersect(disk.Range{Len: c.size}))
}
