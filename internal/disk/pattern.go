package disk

import (
	"context"
	"encoding/binary"
)

// A Pattern is a Source whose content is computed: every 8-byte word at a multiple of 8 is its offset,
// big-endian. So a test finds any byte at a wrong position. A Pattern may have holes like those of a
// VM's disk, see NewSparsePattern. It needs no storage: one Pattern and one Check test a copy of many
// TiB.
type Pattern struct {
	size int64  // size of the disk in bytes
	fill uint64 // number of cells with data in each 1<<16 cells
	seed uint64 // determines which cells have data
}

const (
	// size in bytes of a cell, which has at most one run of data
	patternCell = 8 << 20
	// unit of the edges of data in a cell, in bytes. It is smaller than a chunk, so that edges fall into
	// the middle of chunks.
	patternGrain = 64 << 10

	patternFull = 1 << 16 // value of fill for a disk without holes
)

// NewPattern returns a Pattern of size bytes without holes.
func NewPattern(size int64) *Pattern { return &Pattern{size: size, fill: patternFull} }

// NewSparsePattern returns a Pattern with about the share fill (0 to 1) of data, in seeded runs of a
// few MiB whose edges are not aligned to chunks.
func NewSparsePattern(size int64, fill float64, seed uint64) *Pattern {
	return &Pattern{size: size, fill: uint64(min(max(fill, 0), 1) * patternFull), seed: seed}
}

// Size returns the virtual size in bytes.
func (p *Pattern) Size() int64 { return p.size }

// Hints returns no preferences.
func (p *Pattern) Hints() Hints { return Hints{} }

// Close does nothing.
func (p *Pattern) Close() error { return nil }

// ReadAt fills b with the pattern from off.
func (p *Pattern) ReadAt(ctx context.Context, b []byte, off int64) error {
	r := Range{off, int64(len(b))}
	if err := CheckRange(p.size, r); err != nil {
		return err
	}
	p.eachExtent(r, func(e Extent) {
		part := b[e.Off-off : e.End()-off]
		if e.Kind == Zero {
			clear(part)
		} else {
			fillWords(part, e.Off)
		}
	})
	return ctx.Err()
}

// Extents describes r.
func (p *Pattern) Extents(ctx context.Context, r Range) ([]Extent, error) {
	if err := CheckRange(p.size, r); err != nil {
		return nil, err
	}
	var out []Extent
	p.eachExtent(r, func(e Extent) { out = AppendExtent(out, e) })
	return out, ctx.Err()
}

// eachExtent calls f for the extents of r in order.
func (p *Pattern) eachExtent(r Range, f func(Extent)) {
	for off := r.Off; off < r.End(); {
		cell := off / patternCell * patternCell
		data := p.dataIn(cell)
		next := Extent{Range: Range{off, min(cell+patternCell, r.End()) - off}, Kind: Zero}
		switch {
		case off < data.Off:
			next.Len = min(next.Len, data.Off-off)
		case off < data.End():
			next.Kind = Data
			next.Len = min(next.Len, data.End()-off)
		}
		f(next)
		off = next.End()
	}
}

// dataIn returns the range with data of the cell that begins at offset cell. It is empty if there is
// none.
func (p *Pattern) dataIn(cell int64) Range {
	whole := Range{cell, patternCell}
	if p.fill == patternFull {
		return whole
	}
	h := mixBits(p.seed ^ uint64(cell))
	if h&(patternFull-1) >= p.fill {
		return Range{Off: cell}
	}
	head := int64(h>>16&15) * patternGrain
	tail := int64(h>>20&15) * patternGrain
	return Range{cell + head, patternCell - head - tail}
}

// mixBits returns unrelated numbers for neighbouring seeds. It is the finalizer of SplitMix64.
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fillWords writes the pattern for the disk's bytes from off into b.
func fillWords(b []byte, off int64) {
	if skip := int(off & 7); skip != 0 {
		var w [8]byte
		binary.BigEndian.PutUint64(w[:], uint64(off-int64(skip)))
		n := copy(b, w[skip:])
		b, off = b[n:], off+int64(n)
	}
	word := uint64(off)
	for len(b) >= 32 {
		binary.BigEndian.PutUint64(b[0:8], word)
		binary.BigEndian.PutUint64(b[8:16], word+8)
		binary.BigEndian.PutUint64(b[16:24], word+16)
		binary.BigEndian.PutUint64(b[24:32], word+24)
		b, word = b[32:], word+32
	}
	for len(b) > 0 {
		var w [8]byte
		binary.BigEndian.PutUint64(w[:], word)
		n := copy(b, w[:])
		b, word = b[n:], word+8
	}
}

// wordsMatch reports whether b is the pattern at off. It compares without writing the pattern to
// memory, which halves the cost of Check.
func wordsMatch(b []byte, off int64) bool {
	word := uint64(off)
	if word&7 != 0 || len(b)&7 != 0 {
		want := make([]byte, len(b))
		fillWords(want, off)
		return string(want) == string(b)
	}
	var diff uint64
	for len(b) >= 32 {
		diff |= binary.BigEndian.Uint64(b[0:8]) ^ word
		diff |= binary.BigEndian.Uint64(b[8:16]) ^ (word + 8)
		diff |= binary.BigEndian.Uint64(b[16:24]) ^ (word + 16)
		diff |= binary.BigEndian.Uint64(b[24:32]) ^ (word + 24)
		b, word = b[32:], word+32
	}
	for ; len(b) > 0; b, word = b[8:], word+8 {
		diff |= binary.BigEndian.Uint64(b) ^ word
	}
	return diff == 0
}
