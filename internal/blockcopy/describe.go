package blockcopy

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// A span is a run of whole chunks to copy, with the data in it. Only the last chunk of the disk may be
// short.
type span struct {
	disk.Range
	data []disk.Range // ranges with data in ascending order, within Range; the rest is zeros
}

// describeWindow is the number of bytes of the disk whose extents one call requests.
const describeWindow = 4 << 30

// describeDisk sends the parts to copy: spans with data to the readers, and runs of zeros directly to
// the writers.
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

// nextMissing returns the next run of chunks between off and limit that the manifest lacks, at most
// describeWindow bytes. Chunks before it count as skipped. limit must be the end of a chunk. It returns
// false if no chunk is missing.
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

// isListed reports whether the chunk at off need not be copied, because the manifest lists it and
// Compare is false.
func (c *copier) isListed(off int64) bool {
	return c.Manifest != nil && !c.Compare && c.Manifest.Has(off/manifest.ChunkSize)
}

// sendSpans divides r into spans and runs of zero chunks, and sends them. Neighbouring zero chunks
// become one run of any length.
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

// spanAt returns the length of a span at off. Spans near the end of the disk are shorter, so that the
// readers finish at about the same time.
func (c *copier) spanAt(off int64) int64 {
	if c.size-off > int64(c.Readers)*c.Span {
		return c.Span
	}
	return roundUp(c.Span/4, manifest.ChunkSize)
}

// takeData moves the data of extents that lies in s into s. A span that begins with zero chunks is cut
// before its first data, so that long holes are not divided. It returns s and the extents that are not
// used up.
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

// trimZeros cuts off the zero chunks after the last data. They become part of a run of zeros.
func (s *span) trimZeros() {
	if n := len(s.data); n > 0 {
		end := roundUp(s.data[n-1].End(), manifest.ChunkSize)
		s.Len = min(end, s.End()) - s.Off
	}
}

// addRange appends r to list, joined to the last range if they are adjacent.
func addRange(list []disk.Range, r disk.Range) []disk.Range {
	if n := len(list); n > 0 && list[n-1].End() == r.Off {
		list[n-1].Len += r.Len
		return list
	}
	return append(list, r)
}

// sendZero sends a window without a buffer, which is a run of zeros. It does nothing for an empty r.
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
