package blockcopy

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// A span is a run of whole chunks that the manifest lacks, with the data in it. Its last
// chunk is short at the end of the disk.
type span struct {
	disk.Range
	data []disk.Range // ranges with data, in order, within Range; the rest is zero
}

// describeWindow is how much of the disk the source is asked to describe at once.
const describeWindow = 4 << 30

// describeDisk walks the disk and distributes the parts to copy: spans with data to the readers, zero runs
// directly to the writers.
func (c *copier) describeDisk(ctx context.Context, spans chan<- span, filled chan<- *window) error {
	for off := int64(0); off < c.size; {
		todo, ok := c.nextMissing(off, c.size)
		if !ok {
			return nil
		}
		extents, err := c.src.Extents(ctx, todo)
		if err != nil {
			return fmt.Errorf("describe %v: %w", todo, err)
		}
		if err := c.sendSpans(ctx, todo, extents, spans, filled); err != nil {
			return err
		}
		off = todo.End()
	}
	return nil
}

// nextMissing returns the next run of chunks from off to limit that the manifest lacks,
// cut to describeWindow. What it passes over counts as skipped. limit is at the end of
// a chunk.
func (c *copier) nextMissing(off, limit int64) (disk.Range, bool) {
	start := off
	for start < limit && c.isListed(start) {
		start += manifest.ChunkSize
	}
	c.ledger.addSkipped(min(start, limit) - off)
	if start >= limit {
		return disk.Range{}, false
	}
	end := start
	for end < limit && end-start < describeWindow && !c.isListed(end) {
		end += manifest.ChunkSize
	}
	return disk.Range{Off: start, Len: min(end, limit) - start}, true
}

func (c *copier) isListed(off int64) bool {
	return c.Manifest != nil && !c.Compare && c.Manifest.Has(off/manifest.ChunkSize)
}

// sendSpans cuts r into spans and zero runs of whole chunks and hands them out. Neighbouring
// zero chunks become one run, however long.
func (c *copier) sendSpans(ctx context.Context, r disk.Range, extents []disk.Extent, spans chan<- span, filled chan<- *window) error {
	zero := disk.Range{Off: r.Off}
	for off := r.Off; off < r.End(); {
		s := span{Range: disk.Range{Off: off, Len: min(c.spanAt(off), r.End()-off)}}
		s, extents = takeData(s, extents)
		s.trimZeros()
		off = s.End()
		if len(s.data) == 0 {
			zero.Len += s.Len
			continue
		}
		if err := sendZero(ctx, filled, zero); err != nil {
			return err
		}
		zero = disk.Range{Off: off}
		if err := send(ctx, spans, s); err != nil {
			return err
		}
	}
	return sendZero(ctx, filled, zero)
}

// spanAt returns the length of a span at off: shorter near the end of the disk, so that
// no reader is left alone with a long one.
func (c *copier) spanAt(off int64) int64 {
	if c.size-off > int64(c.Readers)*c.Span {
		return c.Span
	}
	return roundUp(c.Span/4, manifest.ChunkSize)
}

// takeData moves the data of extents that lies in s into it. A span that starts with
// zero chunks is cut before its first data, so that long holes stay whole. It returns
// the extents that reach beyond the span.
func takeData(s span, extents []disk.Extent) (span, []disk.Extent) {
	for len(extents) > 0 {
		e := extents[0]
		part := e.Intersect(s.Range)
		if e.Kind == disk.Data && !part.Empty() {
			if first := part.Off / manifest.ChunkSize * manifest.ChunkSize; len(s.data) == 0 && first > s.Off {
				s.Len = first - s.Off
				return s, extents
			}
			s.data = addRange(s.data, part)
		}
		if e.End() > s.End() {
			break
		}
		extents = extents[1:]
	}
	return s, extents
}

// trimZeros cuts the zero chunks after the last data off: they become part of a zero run.
func (s *span) trimZeros() {
	if n := len(s.data); n > 0 {
		end := roundUp(s.data[n-1].End(), manifest.ChunkSize)
		s.Len = min(end, s.End()) - s.Off
	}
}

// addRange appends r, joining it to the last range where they touch.
func addRange(list []disk.Range, r disk.Range) []disk.Range {
	if n := len(list); n > 0 && list[n-1].End() == r.Off {
		list[n-1].Len += r.Len
		return list
	}
	return append(list, r)
}

func sendZero(ctx context.Context, filled chan<- *window, r disk.Range) error {
	if r.Empty() {
		return nil
	}
	return send(ctx, filled, &window{Range: r})
}

// send sends v unless ctx ends first.
func send[T any](ctx context.Context, to chan<- T, v T) error {
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
