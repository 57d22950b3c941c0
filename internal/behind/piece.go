package behind

import (
	"slices"
	"sort"

	"github.com/decamp/decamp/internal/disk"
)

// A piece is a part of a chunk that somebody wrote: bytes of a buffer, or zeros.
type piece struct {
	disk.Range
	from *Buffer // holds a reference; nil stands for zeros
	at   int64   // of the piece's first byte in from
}

// bytes returns what the piece shows of its buffer, nil for zeros.
func (p piece) bytes() []byte {
	if p.from == nil {
		return nil
	}
	return p.from.memory[p.at : p.at+p.Len]
}

// part returns the part of p within r, without a reference of its own.
func (p piece) part(r disk.Range) piece {
	r = p.Intersect(r)
	return piece{Range: r, from: p.from, at: p.at + r.Off - p.Off}
}

func (p piece) retain() {
	if p.from != nil {
		p.from.retain()
	}
}

func (p piece) release() {
	if p.from != nil {
		p.from.Release()
	}
}

// pieces are in order and do not overlap: where they did, the one that came last has won.
type pieces []piece

// add puts p in, over whatever was there, and takes its reference over. It returns how
// many bytes more are covered now.
func (ps *pieces) add(p piece) int64 {
	if n := len(*ps); n == 0 || (*ps)[n-1].End() <= p.Off { // the usual case
		*ps = append(*ps, p)
		return p.Len
	}
	return p.Len - ps.replace(p.Range, p)
}

// cut takes out what lies in r. It returns how many bytes that were.
func (ps *pieces) cut(r disk.Range) int64 { return ps.replace(r) }

// replace takes out what lies in r, puts with in its place, and returns how many bytes
// were taken out. A piece across an edge of r keeps what lies outside.
func (ps *pieces) replace(r disk.Range, with ...piece) (removed int64) {
	old := *ps
	first := sort.Search(len(old), func(i int) bool { return old[i].End() > r.Off })
	end := first
	var room [3]piece
	middle := room[:0]
	for ; end < len(old) && old[end].Off < r.End(); end++ {
		p := old[end]
		removed += p.Intersect(r).Len
		if p.Off < r.Off {
			left := p.part(disk.Range{Off: p.Off, Len: r.Off - p.Off})
			left.retain()
			middle = append(middle, left)
		}
	}
	middle = append(middle, with...)
	if end > first {
		if p := old[end-1]; p.End() > r.End() {
			right := p.part(disk.Range{Off: r.End(), Len: p.End() - r.End()})
			right.retain()
			middle = append(middle, right)
		}
	}
	for _, p := range old[first:end] {
		p.release()
	}
	*ps = slices.Replace(old, first, end, middle...)
	return removed
}

// release gives all references back and empties ps.
func (ps *pieces) release() {
	for _, p := range *ps {
		p.release()
	}
	clear(*ps)
	*ps = (*ps)[:0]
}

// copyTo copies all pieces into b, whose first byte is the disk's byte off. They must lie
// within it.
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

// gaps calls do for every part of r that no piece covers, in order, until that fails.
func (ps pieces) gaps(r disk.Range, do func(disk.Range) error) error {
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
