// Package bitmap remembers one bit for each grain of a disk: which parts of an image
// were ever written.
//
// A Bitmap needs size/grain/8 bytes and is safe for concurrent use.
package bitmap

import (
	"math/bits"
	"sync/atomic"

	"github.com/decamp/decamp/internal/disk"
)

// A Bitmap has one bit for every grain bytes of a disk of size bytes. It is safe for concurrent use.
type Bitmap struct {
	size, grain int64
	words       []atomic.Uint64 // bits, 64 in each word; bit 0 of the first word is the first grain
}

// New returns a Bitmap without a bit set.
func New(size, grain int64) *Bitmap {
	n := (size + grain - 1) / grain
	return &Bitmap{size: size, grain: grain, words: make([]atomic.Uint64, (n+63)/64)}
}

// Set sets the bits of all grains that r touches.
func (b *Bitmap) Set(r disk.Range) {
	if r.Empty() {
		return
	}
	for i := r.Off / b.grain; i <= (r.End()-1)/b.grain; i++ {
		if w := &b.words[i/64]; w.Load()&(1<<(i%64)) == 0 {
			w.Or(1 << (i % 64))
		}
	}
}

// Clear clears the bits of the grains that lie completely within r. The last grain of the disk may be
// shorter than the others.
func (b *Bitmap) Clear(r disk.Range) {
	first, end := (r.Off+b.grain-1)/b.grain, r.End()/b.grain
	if r.End() == b.size {
		end = (r.End() + b.grain - 1) / b.grain
	}
	for i := first; i < end; i++ {
		b.words[i/64].And(^uint64(1 << (i % 64)))
	}
}

// Has reports whether the grain at off has its bit set.
func (b *Bitmap) Has(off int64) bool {
	i := off / b.grain
	return b.words[i/64].Load()&(1<<(i%64)) != 0
}

// Next returns the first run of set grains that touches r, cut to r. If there is none, the result is
// empty and starts at the end of r.
func (b *Bitmap) Next(r disk.Range) disk.Range {
	limit := (r.End() + b.grain - 1) / b.grain
	first := b.findBit(r.Off/b.grain, limit, 0)
	if r.Empty() || first == limit {
		return disk.Range{Off: r.End()}
	}
	off := max(first*b.grain, r.Off)
	end := min(b.findBit(first, limit, ^uint64(0))*b.grain, r.End())
	return disk.Range{Off: off, Len: end - off}
}

// findBit returns the index of the first bit in [i, limit) that is set after its word was xored with
// flip. With all ones it finds the first clear bit. It returns limit if there is none.
func (b *Bitmap) findBit(i, limit int64, flip uint64) int64 {
	for w := i / 64; w*64 < limit; w++ {
		word := b.words[w].Load() ^ flip
		if w == i/64 {
			word &= ^uint64(0) << (i % 64)
		}
		if word != 0 {
			return min(w*64+int64(bits.TrailingZeros64(word)), limit)
		}
	}
	return limit
}
