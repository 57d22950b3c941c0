package behind

import (
	"context"
	"fmt"
	"io"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// ReadAt fills p from off and returns how many bytes that were, with io.EOF if the disk
// ends before. It sees all that is held, as it was at one moment: a Write is seen as a
// whole or not at all.
func (f *File) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fault.New(fault.Invalid, "read at %d", off).WithHint("read within the disk")
	}
	v, err := f.look(ctx, disk.Range{Off: off, Len: int64(len(p))})
	if err != nil {
		return 0, err
	}
	defer f.release(v)
	for _, at := range v {
		if err := f.fill(ctx, p[at.Off-off:at.End()-off], at); err != nil {
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
	pieces pieces // in memory, with references of their own
	blank  bool   // the rest is zeros; else it is what the target has,
	pinned *chunk // which does not change as long as this is pinned
}

func (v view) len() (n int) {
	for _, p := range v {
		n += int(p.Len)
	}
	return n
}

// look takes a view of r. It waits for writers that wait for readers.
func (f *File) look(ctx context.Context, r disk.Range) (view, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if err := f.readable(); err != nil {
			return nil, err
		}
		r := r.Intersect(disk.Range{Len: f.size})
		if !f.wanted(r) {
			return f.view(r), nil
		}
		if err := f.waitTaken(ctx); err != nil {
			return nil, err
		}
	}
}

// wanted reports whether a writer waits to begin with a chunk of r. It needs mu.
func (f *File) wanted(r disk.Range) bool {
	for off := r.Off; off < r.End(); {
		number := off / manifest.ChunkSize
		if c := f.chunks[number]; c != nil && c.wanted {
			return true
		}
		off = f.rangeOf(number).End()
	}
	return false
}

// waitTaken waits until a wanted chunk is taken, or ctx ends. It needs mu.
func (f *File) waitTaken(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.taken.Broadcast()
	})
	defer stop()
	f.taken.Wait()
	return ctx.Err()
}

// view needs mu.
func (f *File) view(r disk.Range) view {
	var v view
	for off := r.Off; off < r.End(); {
		number := off / manifest.ChunkSize
		p := part{Range: r.Intersect(f.rangeOf(number)), blank: f.blank.Has(off)}
		if c := f.chunks[number]; c != nil {
			p.pieces = c.show(p.Range)
		}
		if !p.blank && p.gaps() {
			p.pinned = f.chunk(number)
			p.pinned.pins++
		}
		v = append(v, p)
		off = p.End()
	}
	return v
}

// show returns the newest pieces in r, with references of their own.
func (c *chunk) show(r disk.Range) pieces {
	var out pieces
	layers := [...]pieces{c.writing, c.held}
	for i, layer := range layers {
		if i == 0 && c.void {
			continue
		}
		for _, p := range layer {
			if p = p.part(r); !p.Empty() {
				p.retain()
				out.add(p)
			}
		}
	}
	return out
}

// gaps reports whether pieces leave something of the part open.
func (p part) gaps() bool {
	var covered int64
	for _, piece := range p.pieces {
		covered += piece.Len
	}
	return covered < p.Len
}

// fill fills b with a part of a view.
func (f *File) fill(ctx context.Context, b []byte, p part) error {
	err := p.pieces.gaps(p.Range, func(g disk.Range) error {
		to := b[g.Off-p.Off : g.End()-p.Off]
		if p.blank {
			clear(to)
			return nil
		}
		return f.readBack(ctx, to, g.Off)
	})
	if err != nil {
		return err
	}
	p.pieces.copyTo(b, p.Off)
	return nil
}

// readBack reads what the target has.
func (f *File) readBack(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	if f.o.Source == nil {
		return fault.New(fault.Unsupported, "read back %v: the target cannot be read", r).
			WithHint("land the disk on a target that can be read while it is written")
	}
	if err := f.o.Source.ReadAt(ctx, p, off); err != nil {
		return fmt.Errorf("read back %v: %w", r, err)
	}
	return nil
}

// release gives a view back.
func (f *File) release(v view) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range v {
		v[i].pieces.release()
		c := v[i].pinned
		if c == nil {
			continue
		}
		c.pins--
		f.settle(c)
	}
	f.kick()
}
