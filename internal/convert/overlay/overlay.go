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

// PageSize is the unit of stored writes, in bytes.
const PageSize = 4096

// An Overlay is a disk.Source with writes on top, which are kept in memory. Reads may run concurrently,
// but not with a write.
type Overlay struct {
	base  disk.Source      // read-only disk
	limit int64            // bytes of memory for pages
	pages map[int64][]byte // written pages by number; the last page of a disk may be shorter
}

// New returns an overlay on base that stores at most limit bytes. Close closes base.
func New(base disk.Source, limit int64) *Overlay {
	return &Overlay{base: base, limit: limit, pages: map[int64][]byte{}}
}

// NewLayer returns an overlay on o with a separate limit of the same size. Writes to it do not change o
// until Merge. The caller must not write to o meanwhile. Closing the layer does not close o.
func (o *Overlay) NewLayer() *Overlay { return New(sharedBase{o}, o.limit) }

// sharedBase is an Overlay as the base of a layer, which must not close it.
type sharedBase struct{ *Overlay }

// Close does nothing.
func (sharedBase) Close() error { return nil }

// CheckMerge returns an error if the writes of a layer would exceed the limit of o.
func (o *Overlay) CheckMerge(above *Overlay) error {
	fresh := 0
	// A page that o has, too, is replaced and needs no further memory.
	for at := range above.pages {
		if o.pages[at] == nil {
			fresh++
		}
	}
	return o.checkLimit(fresh)
}

// Merge moves the writes of a layer to o. The caller must have called CheckMerge.
func (o *Overlay) Merge(above *Overlay) {
	maps.Copy(o.pages, above.pages)
	above.pages = map[int64][]byte{}
}

// checkLimit returns an error if fresh further pages would exceed the limit.
func (o *Overlay) checkLimit(fresh int) error {
	if held := int64(len(o.pages)+fresh) * PageSize; held > o.limit {
		return fault.New(fault.Unsupported, "more than %d MiB of the disk would be changed", o.limit>>20)
	}
	return nil
}

// Size returns the size of the base disk.
func (o *Overlay) Size() int64 { return o.base.Size() }

// Hints returns the hints of the base disk without streaming, which would bypass written pages.
func (o *Overlay) Hints() disk.Hints {
	h := o.base.Hints()
	h.Stream = nil
	return h
}

// Close closes the base disk and discards the writes.
func (o *Overlay) Close() error { return o.base.Close() }

// ReadAt fills p from off. The range must be within the disk.
func (o *Overlay) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(o.Size(), disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	// Without writes a single read of the base is sufficient.
	if len(o.pages) == 0 {
		return o.base.ReadAt(ctx, p, off)
	}
	for len(p) > 0 {
		n, held := o.sameOrigin(off, int64(len(p)))
		if held {
			copy(p[:n], o.pages[off/PageSize][off%PageSize:])
		} else if err := o.base.ReadAt(ctx, p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return ctx.Err()
}

// sameOrigin returns how many of the n bytes from off have the same origin: a single written page
// (true), or the base disk (false).
func (o *Overlay) sameOrigin(off, n int64) (int64, bool) {
	at := off / PageSize
	if o.pages[at] != nil {
		return min(n, PageSize-off%PageSize), true
	}
	end := at + 1
	// Adjacent pages of the base are read together.
	for end*PageSize < off+n && o.pages[end] == nil {
		end++
	}
	return min(n, end*PageSize-off), false
}

// WriteAt writes all of p at off, or nothing. It fails with fault.Unsupported if the limit would be
// exceeded.
func (o *Overlay) WriteAt(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	if err := disk.CheckRange(o.Size(), r); err != nil || r.Empty() {
		return err
	}
	// Pages are collected first, so that a failed read or the limit leaves the overlay unchanged.
	pages := map[int64][]byte{}
	for at := off / PageSize; at*PageSize < r.End(); at++ {
		page, err := o.pageForWrite(ctx, at)
		if err != nil {
			return err
		}
		pages[at] = page
	}
	// Pages that were written before are counted already.
	fresh := 0
	for at := range pages {
		if o.pages[at] == nil {
			fresh++
		}
	}
	if err := o.checkLimit(fresh); err != nil {
		return err
	}
	// A page that was written before is changed in place; copies become part of the overlay below.
	for at, page := range pages {
		first := max(off, at*PageSize)
		copy(page[first-at*PageSize:], p[first-off:])
	}
	maps.Copy(o.pages, pages)
	return nil
}

// pageForWrite returns a page that may be changed: the written one, or a copy from the base disk.
func (o *Overlay) pageForWrite(ctx context.Context, at int64) ([]byte, error) {
	if page := o.pages[at]; page != nil {
		return page, nil
	}
	page := make([]byte, min(PageSize, o.Size()-at*PageSize))
	if err := o.base.ReadAt(ctx, page, at*PageSize); err != nil {
		return nil, fmt.Errorf("read the base disk: %w", err)
	}
	return page, nil
}

// Changed returns the ranges that were written, in order, rounded to whole pages.
func (o *Overlay) Changed() []disk.Range {
	var out []disk.Range
	for _, at := range slices.Sorted(maps.Keys(o.pages)) {
		r := disk.Range{Off: at * PageSize, Len: int64(len(o.pages[at]))}
		// Adjacent pages become one range.
		if last := len(out) - 1; last >= 0 && out[last].End() == r.Off {
			out[last].Len += r.Len
			continue
		}
		out = append(out, r)
	}
	return out
}

// Extents returns the extents of the base disk, with written pages as data.
func (o *Overlay) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	base, err := o.base.Extents(ctx, r)
	if err != nil || len(o.pages) == 0 {
		return base, err
	}
	changed := o.Changed()
	var out []disk.Extent
	for _, e := range base {
		// Data stays data; only holes can become data by a write.
		if e.Kind == disk.Data {
			out = append(out, e)
			continue
		}
		out = append(out, disk.Describe(e.Range, changed)...)
	}
	return out, nil
}

// ApplyTo writes the changed pages to t, which must have the content of the base disk. It does not sync.
func (o *Overlay) ApplyTo(ctx context.Context, t interface {
	WriteAt(ctx context.Context, p []byte, off int64) error
}) error {
	for _, at := range slices.Sorted(maps.Keys(o.pages)) {
		if err := t.WriteAt(ctx, o.pages[at], at*PageSize); err != nil {
			return fmt.Errorf("write the change at %d: %w", at*PageSize, err)
		}
	}
	return nil
}
