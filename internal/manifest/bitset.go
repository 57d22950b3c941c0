package manifest

import "math/bits"

// A bitset is one bit per chunk.
type bitset []uint64

func newBitset(n int64) bitset { return make(bitset, (n+63)/64) }

func (b bitset) has(i int64) bool { return b[i/64]&(1<<(i%64)) != 0 }

// set sets the bits [first, first+n) and returns how many were clear.
func (b bitset) set(first, n int64) (changed int64) {
	b.words(first, n, func(w *uint64, mask uint64) {
		changed += int64(bits.OnesCount64(mask &^ *w))
		*w |= mask
	})
	return changed
}

// clear clears the bits [first, first+n) and returns how many were set.
func (b bitset) clear(first, n int64) (changed int64) {
	b.words(first, n, func(w *uint64, mask uint64) {
		changed += int64(bits.OnesCount64(mask & *w))
		*w &^= mask
	})
	return changed
}

// words calls fn for each word that has bits of [first, first+n), with their mask.
func (b bitset) words(first, n int64, fn func(w *uint64, mask uint64)) {
	for end := first + n; first < end; {
		next := min(end, (first/64+1)*64)
		mask := ^uint64(0) << (first % 64)
		if next%64 != 0 {
			mask &= 1<<(next%64) - 1
		}
		fn(&b[first/64], mask)
		first = next
	}
}
