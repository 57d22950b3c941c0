package readahead

import (
	"context"
	"io"

	"github.com/decamp/decamp/internal/disk"
)

const (
	// number of bytes of a page after whose arrival its readers are woken
	chunk = 256 << 10
	// largest hole between data, in bytes, that is read as well from a source that prefers streams: another
	// request costs more
	worthGap = 64 << 10
	// number of small reads after which the allocation map is requested
	mapAfter = 32
)

// A filler fills pages that follow each other. If the source prefers streams, one stream can fill several
// pages.
type filler struct {
	file  *File         // file of the pages
	until int64         // offset after the last page
	body  io.ReadCloser // open stream; nil if there is none
	at    int64         // offset of the next byte of body
	end   int64         // offset after the last byte of body
}

// fillPages reads the missing bytes of pages that follow each other, including bytes that are requested
// meanwhile. After an error, all pages that are not filled fail.
func (f *File) fillPages(pages []*page) {
	fill := &filler{file: f, until: f.cache.limitOf(pages[len(pages)-1])}
	defer fill.closeStream()
	for i, p := range pages {
		if err := fill.fillPage(p); err != nil {
			for _, p := range pages[i:] {
				f.cache.failPage(p, err)
			}
			return
		}
	}
}

// fillPage reads the missing bytes of p.
func (l *filler) fillPage(p *page) error {
	for {
		r, ok := l.file.cache.nextMissing(p)
		if !ok {
			return nil
		}
		if err := l.fetchRange(p, r); err != nil {
			return err
		}
	}
}

// fetchRange reads r into p. It does not request holes from the source, if they are known.
func (l *filler) fetchRange(p *page, r disk.Range) error {
	f := l.file
	if p.isBlock() {
		if f.blockFetches.Add(1) == mapAfter {
			f.startMap()
		}
	} else {
		f.waitMap()
	}
	if !f.mapped.Load() {
		return l.fetchData(p, r, l.until)
	}
	if l.body != nil && l.at == r.Off && l.at < l.end { // the stream may include a short hole
		part := disk.Range{Off: r.Off, Len: min(l.end, r.End()) - r.Off}
		return l.fetchData(p, part, l.end)
	}
	extents, err := f.extentsToRead(f.ctx, disk.Range{Off: r.Off, Len: max(l.until, r.End()) - r.Off})
	if err != nil {
		return err
	}
	for _, e := range extents {
		part := e.Intersect(r)
		switch {
		case part.Empty():
			return nil
		case e.Kind == disk.Zero:
			clear(p.slice(part))
			f.cache.addHole(p, part.Len)
		default:
			if err := l.fetchData(p, part, e.End()); err != nil {
				return err
			}
		}
	}
	return nil
}

// extentsToRead describes r, which is read by its extents. If the source prefers streams, short holes count as
// data.
func (f *File) extentsToRead(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	extents, err := f.src.Extents(ctx, r)
	if f.streams {
		extents = joinExtents(extents)
	}
	return extents, err
}

// joinExtents merges extents that are cheaper to read together: short holes between data.
func joinExtents(extents []disk.Extent) []disk.Extent {
	var out []disk.Extent
	for i, e := range extents {
		between := len(out) > 0 && i+1 < len(extents) && e.Len <= worthGap
		if e.Kind == disk.Zero && between && out[len(out)-1].Kind == disk.Data {
			e.Kind = disk.Data
		}
		out = disk.AppendExtent(out, e)
	}
	return out
}

// fetchData reads r into p: a block with one request of high priority, a page from a stream that reaches
// to end, if the source prefers streams.
func (l *filler) fetchData(p *page, r disk.Range, end int64) error {
	f := l.file
	if p.isBlock() || !f.streams {
		err := f.src.ReadAt(f.ctx, p.slice(r), r.Off)
		if err == nil {
			f.cache.addFilled(p, r.Len)
		}
		return err
	}
	if err := l.openStream(r, end); err != nil {
		return err
	}
	for r.Len > 0 {
		part := disk.Range{Off: r.Off, Len: min(r.Len, chunk)}
		if _, err := io.ReadFull(l.body, p.slice(part)); err != nil {
			return err
		}
		f.cache.addFilled(p, part.Len)
		l.at = part.End()
		r = disk.Range{Off: part.End(), Len: r.Len - part.Len}
	}
	return nil
}

// openStream opens a stream from the start of r to end, unless the open one continues with r.
func (l *filler) openStream(r disk.Range, end int64) error {
	if l.body != nil && l.at == r.Off && r.End() <= l.end {
		return nil
	}
	l.closeStream()
	end = max(min(end, l.until), r.End())
	body, err := l.file.src.Hints().Stream(l.file.ctx, disk.Range{Off: r.Off, Len: end - r.Off})
	if err != nil {
		return err
	}
	l.body, l.at, l.end = body, r.Off, end
	return nil
}

// closeStream closes the open stream.
func (l *filler) closeStream() {
	if l.body != nil {
		l.body.Close()
		l.body = nil
	}
}

// startMap requests the allocation map in the background, the first time it is called. Until it
// arrives, or if it cannot be read, all is data.
func (f *File) startMap() {
	f.mapOnce.Do(func() {
		var done context.CancelFunc
		f.mapWait, done = context.WithTimeout(f.ctx, f.cache.opts.mapPatience)
		f.fills.Go(func() {
			defer done()
			_, _ = f.Extents(f.ctx, disk.Range{Len: 1}) // reading everything is correct
		})
	})
}

// waitMap requests the allocation map and waits for it, but not longer than Options.mapPatience after
// the request.
func (f *File) waitMap() {
	if !f.mapped.Load() {
		f.startMap()
		<-f.mapWait.Done()
	}
}
