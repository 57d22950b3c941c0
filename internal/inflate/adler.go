package inflate

import "encoding/binary"

const (
	adlerMod = 65521 // largest prime below 1 << 16, RFC 1950 section 8

	// number of 8-byte words that one block adds in 16-bit lanes without overflow: 255 x 22 x 23 / 2 is
	// less than 1 << 16
	adlerWords = 22
	adlerBlock = adlerWords * 8 // size of a block in bytes

	// number of bytes after which the two sums are reduced modulo adlerMod; 64 bits could hold the sums of
	// many more
	adlerLong = 64 << 10

	evenBytes = 0x00ff00ff00ff00ff // mask of the bytes 0, 2, 4 and 6 of a word
)

// adlerSum returns the Adler-32 checksum of p (RFC 1950): a is one and the sum of all bytes, b is the
// sum of all values of a. It adds the bytes of a word in parallel in 16-bit lanes, which needs less
// than half the time of hash/adler32.
func adlerSum(p []byte) uint32 {
	a, b := uint64(1), uint64(0)
	for len(p) > 0 {
		part := p[:min(len(p), adlerLong)]
		p = p[len(part):]
		for len(part) >= adlerBlock {
			a, b = adlerSums(part[:adlerBlock], a, b)
			part = part[adlerBlock:]
		}
		for _, x := range part {
			a += uint64(x)
			b += a
		}
		a %= adlerMod
		b %= adlerMod
	}
	return uint32(b<<16 | a)
}

// adlerSums adds one block of adlerBlock bytes to the sums. In b, byte j of word i counts 8 x (words
// after i) + 8 - j times. The words after it are counted by adding the lanes before each word, and the
// position in the word by a weight for each lane.
func adlerSums(p []byte, a, b uint64) (uint64, uint64) {
	var even, odd, before, beforeOdd uint64 // bytes 0, 2, 4, 6 of the words, and 1, 3, 5, 7
	q := (*[adlerBlock]byte)(p)
	for i := 0; i <= adlerBlock-16; i += 16 {
		v, w := binary.LittleEndian.Uint64(q[i:i+8]), binary.LittleEndian.Uint64(q[i+8:i+16])
		before += even
		beforeOdd += odd
		even += v & evenBytes
		odd += v >> 8 & evenBytes
		before += even
		beforeOdd += odd
		even += w & evenBytes
		odd += w >> 8 & evenBytes
	}
	e0, e2, e4, e6 := splitLanes(even)
	o1, o3, o5, o7 := splitLanes(odd)
	b += adlerBlock*a + 8*(sumLanes(before)+sumLanes(beforeOdd)) +
		8*e0 + 7*o1 + 6*e2 + 5*o3 + 4*e4 + 3*o5 + 2*e6 + o7
	return a + e0 + e2 + e4 + e6 + o1 + o3 + o5 + o7, b
}

// splitLanes returns the four 16-bit lanes of x, lowest first.
func splitLanes(x uint64) (w, x1, y, z uint64) {
	return x & 0xffff, x >> 16 & 0xffff, x >> 32 & 0xffff, x >> 48
}

// sumLanes returns the sum of the four 16-bit lanes of x.
func sumLanes(x uint64) uint64 {
	w, x1, y, z := splitLanes(x)
	return w + x1 + y + z
}
