package writebehind

import (
	"slices"
	"sort"

	"github.com/decamp/decamp/internal/disk"
)

// A piece is a written part of a chunk: bytes of a buffer, or zeros.
type piece struct {
	disk.Range
	from *Buffer // holds a reference; nil stands for zeros
	at   int64   // offset of the piece's first byte in from
}

// bytes returns the piece's bytes in its buffer; nil for zeros.
func (p piece) bytes() []byte {
	if p.from == nil {
		return nil
	}
	return p.from.memory[p.at : p.at+p.Len]
}

// blockOff returns the offset of the piece in the block of its buffer. The piece must not be zeros.
func (p piece) blockOff() int64 { return p.from.start + p.at }

// clipTo returns the part of p within r, without another reference.
func (p piece) clipTo(r disk.Range) piece {
	r = p.Intersect(r)
	return piece{Range: r, from: p.from, at: p.at + r.Off - p.Off}
}

// retain adds a reference to the buffer.
func (p piece) retain() {
	if p.from != nil {
		p.from.retain()
	}
}

// release drops a reference to the buffer.
func (p piece) release() {
	if p.from != nil {
		p.from.Release()
	}
}

// pieces are sorted and do not overlap: the last of overlapping writes remains.
type pieces []piece

// add inserts p and owns its reference. It hides older pieces under p. It returns how many more bytes
// are covered now.
func (ps *pieces) add(p piece) int64 {
	if n := len(*ps); n == 0 || (*ps)[n-1].End() <= p.Off { // the usual case
		*ps = append(*ps, p)
		return p.Len
	}
	return p.Len - ps.addOver(p)
}

// addOver adds p and returns the number of bytes that it hides. A piece that extends beyond p keeps its
// other parts.
func (ps *pieces) addOver(p piece) (hidden int64) {
	old := *ps
	first := sort.Search(len(old), func(i int) bool { return old[i].End() > p.Off })
	end := first
	var room [3]piece
	now := room[:0]
	for ; end < len(old) && old[end].Off < p.End(); end++ {
		hidden += old[end].Intersect(p.Range).Len
	}
	if first < end {
		now = old[first].appendPart(now, disk.Range{Off: old[first].Off, Len: p.Off - old[first].Off})
	}
	now = append(now, p)
	if first < end {
		now = old[end-1].appendPart(now, disk.Range{Off: p.End(), Len: old[end-1].End() - p.End()})
	}
	for _, o := range old[first:end] {
		o.release()
	}
	*ps = slices.Replace(old, first, end, now...)
	return hidden
}

// appendPart appends the part r of p, if it is not empty, with another reference.
func (p piece) appendPart(to []piece, r disk.Range) []piece {
	if r.Empty() {
		return to
	}
	kept := p.clipTo(r)
	kept.retain()
	return append(to, kept)
}

// release drops all references and empties ps.
func (ps *pieces) release() {
	for _, p := range *ps {
		p.release()
	}
	clear(*ps)
	*ps = (*ps)[:0]
}

// copyTo copies all pieces into b, whose first byte is byte off of the disk. All pieces must be within
// b.
func (ps pieces) copyTo(b []byte, off int64) {
	for _, p := range ps {
		to := b[p.Off-off : p.End()-off]
		if p.from == nil {
			clear(to)
			continue
		}
		copy(to, p.bytes())
	}
}

// eachGap calls do for every part of r that no piece covers, in order, until do fails.
func (ps pieces) eachGap(r disk.Range, do func(disk.Range) error) error {
	at := r.Off
	for _, p := range ps {
		if p.Off > at {
			if err := do(disk.Range{Off: at, Len: p.Off - at}); err != nil {
				return err
			}
		}
		at = max(at, p.End())
	}
	if at < r.End() {
		return do(disk.Range{Off: at, Len: r.End() - at})
	}
	return nil
}
