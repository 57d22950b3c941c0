package writebehind

import (
	"context"
	"io"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// ReadAt reads len(p) bytes from offset off. If the disk ends before, it returns the number of bytes and
// io.EOF. A concurrent Write is visible as a whole or not at all.
func (f *File) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fault.New(fault.Invalid, "read at %d", off).WithHint("read within the disk")
	}
	v, err := f.waitForView(ctx, disk.Range{Off: off, Len: int64(len(p))})
	if err != nil {
		return 0, err
	}
	defer f.releaseView(v)
	for _, at := range v {
		if err := f.image.fillPart(ctx, p[at.Off-off:at.End()-off], at); err != nil {
			return 0, err
		}
	}
	if n := v.len(); n < len(p) {
		return n, io.EOF
	}
	return len(p), nil
}

// A view describes a range of the disk at one moment.
type view []part

// A part is the part of a view within one chunk.
type part struct {
	disk.Range
	pieces pieces // pieces in memory, with separate references
	blank  bool   // bytes without a piece are zeros; otherwise they are in the target
	pinned *chunk // chunk that does not change while it is pinned
}

// len returns the bytes of the view.
func (v view) len() (n int) {
	for _, p := range v {
		n += int(p.Len)
	}
	return n
}

// waitForView returns a view of r, up to the end of the disk. A writer that waits for a chunk in r takes
// it first. The caller must release the view.
func (f *File) waitForView(ctx context.Context, r disk.Range) (view, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if err := f.life.checkReadable(); err != nil {
			return nil, err
		}
		r := r.Intersect(disk.Range{Len: f.size})
		if !f.table.isWanted(r) {
			return f.table.takeView(r), nil
		}
		if err := f.waitTaken(ctx); err != nil {
			return nil, err
		}
	}
}

// waitTaken waits until a wanted chunk is taken, or ctx ends. mu must be held; it is unlocked during
// the wait.
func (f *File) waitTaken(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.table.taken.Broadcast()
	})
	defer stop()
	f.table.taken.Wait()
	return ctx.Err()
}

// newestPieces returns the newest pieces in r, with separate references.
func (c *chunk) newestPieces(r disk.Range) pieces {
	var out pieces
	layers := [...]pieces{c.writing, c.unwritten}
	for i, layer := range layers {
		if i == 0 && c.void {
			continue
		}
		for _, p := range layer {
			if p = p.clipTo(r); !p.Empty() {
				p.retain()
				out.add(p)
			}
		}
	}
	return out
}

// hasGaps reports whether the pieces do not cover the part.
func (p part) hasGaps() bool {
	var covered int64
	for _, piece := range p.pieces {
		covered += piece.Len
	}
	return covered < p.Len
}

// releaseView releases a view, and starts the writers that waited for it.
func (f *File) releaseView(v view) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.releaseView(v)
	f.writers.startWriter()
}
