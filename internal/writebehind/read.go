package writebehind

import (
	"context"
	"io"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// ReadAt fills p from off and returns how many bytes that were, with io.EOF if the disk
// ends before. It sees all that is held, as it was at one moment: a Write is seen as a
// whole or not at all.
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

// A view is what a range of the disk was at one moment.
type view []part

// A part is what a view has of one chunk.
type part struct {
	disk.Range
	pieces pieces // pieces in memory, with separate references
	blank  bool   // the rest is zeros; else it is what the target has,
	pinned *chunk // chunk that does not change while it is pinned
}

func (v view) len() (n int) {
	for _, p := range v {
		n += int(p.Len)
	}
	return n
}

// waitForView takes a view of r. It waits for writers that wait for readers.
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

// waitTaken waits until a wanted chunk is taken, or ctx ends. It needs mu.
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
	layers := [...]pieces{c.writing, c.held}
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

// hasGaps reports whether pieces leave something of the part open.
func (p part) hasGaps() bool {
	var covered int64
	for _, piece := range p.pieces {
		covered += piece.Len
	}
	return covered < p.Len
}

// releaseView gives a view back.
func (f *File) releaseView(v view) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.releaseView(v)
	f.writers.startWriter()
}
