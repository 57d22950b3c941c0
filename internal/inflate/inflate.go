// Package inflate decodes deflate (RFC 1951) and zlib (RFC 1950) data in one call, from
// a whole compressed buffer into a whole output buffer.
//
// It exists because disks come compressed in small independent pieces, the 64 KiB grains
// of a streamOptimized VMDK, and inflating them is what such a copy waits for. Knowing
// that everything is in memory saves what a streaming decoder spends on its window, its
// state and its reader: about twice the speed of compress/flate and of
// klauspost/compress on one core (BenchmarkZlib has both beside it).
//
// # How
//
// A bit buffer of 64 bits is filled eight bytes at a time without a branch. Codes of up
// to 11 bits (literals and lengths) or 8 bits (distances) take one look into a table,
// longer ones a second look into a subtable. One loop runs while neither buffer can end
// within a symbol and checks neither; another one, slower and careful, does the rest.
//
// # What it promises
//
// It accepts exactly what compress/flate accepts and gives the same bytes, if the output
// fits: FuzzRaw holds it to that. It never writes outside dst, and allocates nothing.
//
// # What it does not promise
//
// On an error dst holds anything. No preset dictionaries, no streaming.
package inflate

import (
	"encoding/binary"
	"errors"
)

// What can be wrong with compressed data. Callers know the offset and the thing.
var (
	ErrCorrupt   = errors.New("invalid deflate data")
	ErrTruncated = errors.New("deflate data ends early")
	ErrTooLong   = errors.New("deflate data holds more than fits")
	ErrHeader    = errors.New("invalid zlib header")
	ErrChecksum  = errors.New("wrong Adler-32 checksum")
)

// A Decoder holds the tables that decoding needs, 26 KiB. The zero value is ready; one
// goroutine may use it at a time.
type Decoder struct {
	lit   litTable
	dist  distTable
	pre   preTable
	lens  [maxLit + maxDist]uint8
	input input
}

// Zlib decodes a zlib stream at the front of src into dst and checks its Adler-32. It
// returns how many bytes of dst were filled and how many of src were used.
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

// validHeader reports deflate with a window of at most 32 KiB, no dictionary, and the
// right check bits.
func validHeader(cmf, flg byte) bool {
	const deflate, maxWindow, dictionary = 8, 7, 0x20
	return cmf&15 == deflate && cmf>>4 <= maxWindow && flg&dictionary == 0 &&
		(uint(cmf)<<8|uint(flg))%31 == 0
}

// Raw decodes a deflate stream at the front of src into dst. It returns how many bytes
// of dst were filled and how many of src were used.
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

// readBlock decodes one block and reports whether it is the last.
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

// input is a call of Raw under way: both buffers and the bits between them.
type input struct {
	src, dst []byte
	pos, out int    // positions in src and dst
	bits     uint64 // taken from src and not used yet, the next one lowest
	n        uint   // how many; those above are zero
}

// fillBits takes whole bytes until more than 56 bits are there or src ends.
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

// unreadBytes drops the rest of a byte begun and gives whole bytes back.
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
