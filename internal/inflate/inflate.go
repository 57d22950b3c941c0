// Package inflate decodes deflate (RFC 1951) and zlib (RFC 1950) data in one call, from a whole
// compressed buffer into a whole output buffer.
//
// Disks are compressed in small independent pieces, the 64 KiB grains of a streamOptimized VMDK,
// and such a copy waits for decompression. A decoder whose buffers are complete needs no window,
// state or reader, as a streaming decoder does. On one core it is about twice as fast as
// compress/flate and klauspost/compress (BenchmarkZlib compares them).
//
// # How
//
// A bit buffer of 64 bits is filled eight bytes at a time without a branch. Codes of up to 11 bits
// (literals and lengths) or 8 bits (distances) need one table lookup; longer codes need a second
// one in a subtable. A fast loop runs while neither buffer can end within a symbol, and checks
// neither. A slower loop with all checks decodes the rest.
//
// # Guarantees
//
// The package accepts the same input as compress/flate, and returns the same bytes if the output
// fits; FuzzRaw compares the two. It never writes outside dst and does not allocate.
//
// # Limits
//
// After an error the content of dst is undefined. Preset dictionaries and streaming are not
// supported.
package inflate

import (
	"encoding/binary"
	"errors"
)

// What can be wrong with compressed data. Callers know the offset and the thing.
var (
	ErrCorrupt   = errors.New("invalid deflate data")              // invalid block type, code, length or distance
	ErrTruncated = errors.New("deflate data ends early")           // the input ends before the last block
	ErrTooLong   = errors.New("deflate data holds more than fits") // the output is longer than dst
	ErrHeader    = errors.New("invalid zlib header")               // no zlib header, or one with a dictionary
	ErrChecksum  = errors.New("wrong Adler-32 checksum")           // the data does not match its checksum
)

// A Decoder holds the tables for decoding, 26 KiB. The zero value is ready for use. It is not safe for
// concurrent use.
type Decoder struct {
	lit   litTable                // literals and lengths of the current block
	dist  distTable               // distances of the current block
	pre   preTable                // code of the code lengths
	lens  [maxLit + maxDist]uint8 // code lengths of literals, lengths and distances
	input input                   // state of the current call
}

// Zlib decodes a zlib stream at the beginning of src into dst, and verifies its Adler-32 checksum. It
// returns the number of bytes that it wrote to dst, and the number of bytes that it read from src.
func (d *Decoder) Zlib(dst, src []byte) (n, used int, err error) {
	const head, tail = 2, 4
	if len(src) < head {
		return 0, 0, ErrTruncated
	}
	if !validHeader(src[0], src[1]) {
		return 0, 0, ErrHeader
	}
	n, used, err = d.Raw(dst, src[head:])
	if err != nil {
		return n, head + used, err
	}
	used += head
	if len(src)-used < tail {
		return n, used, ErrTruncated
	}
	if binary.BigEndian.Uint32(src[used:]) != adlerSum(dst[:n]) {
		return n, used, ErrChecksum
	}
	return n, used + tail, nil
}

// validHeader reports whether the header is valid: deflate, a window of at most 32 KiB, no dictionary,
// and right check bits (RFC 1950 section 2.2).
func validHeader(cmf, flg byte) bool {
	const deflate, maxWindow, dictionary = 8, 7, 0x20
	return cmf&15 == deflate && cmf>>4 <= maxWindow && flg&dictionary == 0 &&
		(uint(cmf)<<8|uint(flg))%31 == 0
}

// Raw decodes a deflate stream at the beginning of src into dst. It returns the number of bytes that it
// wrote to dst, and the number of bytes that it read from src.
func (d *Decoder) Raw(dst, src []byte) (n, used int, err error) {
	s := &d.input
	*s = input{src: src, dst: dst}
	defer func() { *s = input{} }() // keep no hold of the caller's memory
	for last := false; !last; {
		if last, err = d.readBlock(s); err != nil {
			return s.out, s.pos, err
		}
	}
	s.unreadBytes()
	return s.out, s.pos, nil
}

// readBlock decodes one block, and reports whether it is the last one.
func (d *Decoder) readBlock(s *input) (last bool, err error) {
	head, err := s.takeBits(3)
	if err != nil {
		return false, err
	}
	last = head&1 != 0
	switch head >> 1 {
	case 0:
		return last, s.copyStored()
	case 1:
		f := fixed()
		return last, s.decodeBlock(&f.lit, &f.dist)
	case 2:
		if err := d.readTables(s); err != nil {
			return false, err
		}
		return last, s.decodeBlock(&d.lit, &d.dist)
	}
	return false, ErrCorrupt
}

// An input is the state of one call of Raw: both buffers, and the bits between them.
type input struct {
	src, dst []byte
	pos, out int    // positions in src and dst
	bits     uint64 // bits that were read from src and not used yet; the next one is the lowest
	n        uint   // number of bits in bits; higher bits are zero
}

// fillBits reads bytes until there are more than 56 bits, or src ends.
func (s *input) fillBits() {
	for s.n <= 56 && s.pos < len(s.src) {
		s.bits |= uint64(s.src[s.pos]) << s.n
		s.pos++
		s.n += 8
	}
}

// takeBits returns the next n bits, at most 32.
func (s *input) takeBits(n uint) (uint, error) {
	if s.n < n {
		if s.fillBits(); s.n < n {
			return 0, ErrTruncated
		}
	}
	v := uint(s.bits & (1<<n - 1))
	s.bits >>= n
	s.n -= n
	return v, nil
}

// unreadBytes discards the rest of a partly used byte, and returns whole bytes to src.
func (s *input) unreadBytes() {
	s.pos -= int(s.n / 8)
	s.bits, s.n = 0, 0
}

// copyStored copies a block that is not compressed.
func (s *input) copyStored() error {
	s.unreadBytes()
	if len(s.src)-s.pos < 4 {
		return ErrTruncated
	}
	size, inverse := binary.LittleEndian.Uint16(s.src[s.pos:]), binary.LittleEndian.Uint16(s.src[s.pos+2:])
	if size != ^inverse {
		return ErrCorrupt
	}
	s.pos += 4
	body := s.src[s.pos:]
	if len(body) < int(size) {
		return ErrTruncated
	}
	if len(s.dst)-s.out < int(size) {
		return ErrTooLong
	}
	s.out += copy(s.dst[s.out:], body[:size])
	s.pos += int(size)
	return nil
}
