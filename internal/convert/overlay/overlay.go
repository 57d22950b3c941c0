// Package overlay stores writes to a disk apart from the disk: a layer in memory on a read-only Source.
// Readers of the layer see the writes. They can be written to an image; otherwise they are discarded.
package overlay

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// PageSize is the unit that is kept, in bytes.
const PageSize = 4096

// An Overlay is a disk.Source with writes on top. One goroutine at a time may write, and no reads may
// run meanwhile.
type Overlay struct {
	base  disk.Source
	limit int64
	pages map[int64][]byte // written pages by number
}

// New returns a layer above base that takes limit bytes of memory at most. Closing it closes
// base.
func New(base disk.Source, limit int64) *Overlay {
	return &Overlay{base: base, limit: limit, pages: map[int64][]byte{}}
}

// Above returns a layer on this one, with a separate limit of the same size. Writes to it stay there
// until Take. o must not be written meanwhile. Closing the layer leaves o open.
func (o *Overlay) Above() *Overlay { return New(kept{o}, o.limit) }

// kept is an Overlay that closing a layer above it leaves open.
type kept struct{ *Overlay }

func (kept) Close() error { return nil }

// Fits returns an error if the writes of a layer on top exceed the limit of o.
func (o *Overlay) Fits(above *Overlay) error {
	fresh := 0
	for at := range above.pages {
		if o.pages[at] == nil {
			fresh++
		}
	}
	return o.fits(fresh)
}

// Take moves the writes of a layer on top into o, within the limit of o.
func (o *Overlay) Take(above *Overlay) {
	maps.Copy(o.pages, above.pages)
	above.pages = map[int64][]byte{}
}

// fits returns an error if so many pages more would be too many.
func (o *Overlay) fits(fresh int) error {
	if held := int64(len(o.pages)+fresh) * PageSize; held > o.limit {
		return fault.New(fault.Unsupported, "more than %d MiB of the disk would be changed", o.limit>>20)
	}
	return nil
}

// Size returns the size of the base disk.
func (o *Overlay) Size() int64 { return o.base.Size() }

// Hints returns the hints of the base disk, which cannot stream past written pages.
func (o *Overlay) Hints() disk.Hints {
	h := o.base.Hints()
	h.Stream = nil
	return h
}

// Close closes the base disk. The writes are lost.
func (o *Overlay) Close() error { return o.base.Close() }

// ReadAt fills p from off.
func (o *Overlay) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(o.Size(), disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	if len(o.pages) == 0 {
		return o.base.ReadAt(ctx, p, off)
	}
	for len(p) > 0 {
		n, held := o.same(off, int64(len(p)))
		if held {
			copy(p[:n], o.pages[off/PageSize][off%PageSize:])
		} else if err := o.base.ReadAt(ctx, p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return ctx.Err()
}

// same returns how many of the n bytes from off have the same origin: one written page, or the base
// disk.
func (o *Overlay) same(off, n int64) (int64, bool) {
	at := off / PageSize
	if o.pages[at] != nil {
		return min(n, PageSize-off%PageSize), true
	}
	end := at + 1
	for end*PageSize < off+n && o.pages[end] == nil {
		end++
	}
	return min(n, end*PageSize-off), false
}

// WriteAt writes all of p at off, or nothing.
func (o *Overlay) WriteAt(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	if err := disk.CheckRange(o.Size(), r); err != nil || r.Empty() {
		return err
	}
	pages := map[int64][]byte{}
	for at := off / PageSize; at*PageSize < r.End(); at++ {
		page, err := o.page(ctx, at)
		if err != nil {
			return err
		}
		pages[at] = page
	}
	fresh := 0
	for at := range pages {
		if o.pages[at] == nil {
			fresh++
		}
	}
	if err := o.fits(fresh); err != nil {
		return err
	}
	for at, page := range pages {
		first := max(off, at*PageSize)
		copy(page[first-at*PageSize:], p[first-off:])
	}
	maps.Copy(o.pages, pages)
	return nil
}

// page returns a page for writing: the written one, or a copy of the base. The last one may be shorter.
func (o *Overlay) page(ctx context.Context, at int64) ([]byte, error) {
	if page := o.pages[at]; page != nil {
		return page, nil
	}
	page := make([]byte, min(PageSize, o.Size()-at*PageSize))
	if err := o.base.ReadAt(ctx, page, at*PageSize); err != nil {
		return nil, fmt.Errorf("read the base disk: %w", err)
	}
	return page, nil
}

// Changed returns the ranges that were written to, in order, in whole pages.
func (o *Overlay) Changed() []disk.Range {
	var out []disk.Range
	for _, at := range slices.Sorted(maps.Keys(o.pages)) {
		r := disk.Range{Off: at * PageSize, Len: int64(len(o.pages[at]))}
		if last := len(out) - 1; last >= 0 && out[last].End() == r.Off {
			out[last].Len += r.Len
			continue
		}
		out = append(out, r)
	}
	return out
}

// Extents describes r: written pages are data.
func (o *Overlay) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	beneath, err := o.base.Extents(ctx, r)
	if err != nil || len(o.pages) == 0 {
		return beneath, err
	}
	changed := o.Changed()
	var out []disk.Extent
	for _, e := range beneath {
		if e.Kind == disk.Data {
			out = append(out, e)
			continue
		}
		out = append(out, disk.Describe(e.Range, changed)...)
	}
	return out, nil
}

// Put writes the changed pages to t, which has the content of the base disk. It does not sync.
func (o *Overlay) Put(ctx context.Context, t interface {
	WriteAt(ctx context.Context, p []byte, off int64) error
}) error {
	for _, at := range slices.Sorted(maps.Keys(o.pages)) {
		if err := t.WriteAt(ctx, o.pages[at], at*PageSize); err != nil {
			return fmt.Errorf("put the change at %d: %w", at*PageSize, err)
		}
	}
	return nil
}
