package vmdk

import (
	"context"
	"sort"

	"github.com/decamp/decamp/internal/disk"
)

// A layer is the content of one descriptor or of one extent: which bytes are data and their positions,
// which are zeros, and which are absent, so that the parent has them. A layer reads tables, not data.
// It is safe for concurrent use.
type layer interface {
	// size returns the number of bytes that the layer describes.
	size() int64

	// newCursor returns a new cursor. It does no I/O.
	newCursor() cursor
}

// A cursor returns the runs of a layer, usually from front to back, and caches the current table. It is
// not safe for concurrent use.
type cursor interface {
	// runAt returns the run at the beginning of r, which must lie within the layer and must not be empty.
	// The run starts at r.Off, ends within r and is not empty. It may be shorter than possible: callers
	// join runs that continue.
	runAt(ctx context.Context, r disk.Range) (Run, error)
}

// A plain is a layer of a single run: a flat file, or only zeros.
type plain struct{ Run }

// newZeros returns a layer of n zero bytes.
func newZeros(n int64) plain { return plain{Run{Range: disk.Range{Len: n}, Kind: Zero}} }

// size returns the length of the run.
func (p plain) size() int64 { return p.Len }

// newCursor returns p itself, because it has no state.
func (p plain) newCursor() cursor { return p }

// runAt implements cursor.
func (p plain) runAt(_ context.Context, r disk.Range) (Run, error) { return p.clip(r), nil }

// A parts is a layer of several extents, one after the other.
type parts struct {
	layers []layer // layers of the extents, in the order of the disk
	starts []int64 // offset of each layer on the disk, and the end of the last layer
}

// newParts returns a layer that is the concatenation of layers. A single layer is returned unchanged.
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

// size returns the sum of the sizes.
func (p parts) size() int64 { return p.starts[len(p.layers)] }

// newCursor returns a cursor without a current part.
func (p parts) newCursor() cursor { return &partsCursor{parts: p, at: -1} }

// A partsCursor reads the parts by the cursor of the current part.
type partsCursor struct {
	parts
	at    int    // index of the current part; -1 before the first call
	inner cursor // cursor of the current part
}

// runAt implements cursor. A run never crosses the end of a part.
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

// A fitted is a layer whose file is larger or smaller than its line in the descriptor. Excess bytes are
// cut off, and missing bytes are absent.
type fitted struct {
	layer
	bytes int64 // size according to the descriptor, in bytes
}

// newFitted returns a layer with the first n bytes of l. It returns l itself if its size is n.
func newFitted(l layer, n int64) layer {
	if l.size() == n {
		return l
	}
	return fitted{layer: l, bytes: n}
}

// size returns the size according to the descriptor.
func (f fitted) size() int64 { return f.bytes }

// newCursor returns a cursor that reports bytes after the end of the file as absent.
func (f fitted) newCursor() cursor { return fittedCursor{f.layer.newCursor(), f.layer.size()} }

// A fittedCursor limits a cursor to the bytes that its layer describes.
type fittedCursor struct {
	inner cursor // cursor of the layer
	size  int64  // number of bytes that inner describes
}

// runAt implements cursor.
func (c fittedCursor) runAt(ctx context.Context, r disk.Range) (Run, error) {
	if r.Off >= c.size {
		return Run{Range: r}, nil
	}
	return c.inner.runAt(ctx, r.Intersect(disk.Range{Len: c.size}))
}
