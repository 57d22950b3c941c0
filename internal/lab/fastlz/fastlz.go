// Package fastlz packs and unpacks blocks in the FastLZ format (public, MIT), as hosts do for NFC:
// without a length in front, at level 2 from 64 KiB on, and at level 1 below. Blocks of less than 16
// bytes are not packed. It belongs to the emulated host and shares no code with a client.
//
// A block is a sequence of instructions. An instruction whose first byte is less than 32 is a run of
// byte+1 literals. Any other instruction is a match: the top three bits of the byte are the length minus
// two; the low five bits and the next byte are the distance minus one. The first instruction of a block
// is a run of literals; its top three bits are the level minus one.
package fastlz

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	minInput   = 16       // shortest input that is packed, in bytes
	level2Size = 64 << 10 // shortest input that is packed at level 2, in bytes

	maxLiterals = 32                      // most literals of one instruction
	minMatch    = 3                       // shortest match in bytes
	maxLength1  = 264                     // longest match at level 1: 2 + 7 + one byte
	maxDistance = 8191                    // longest distance of a near match, in bytes
	maxFar      = maxDistance + 1 + 65535 // longest distance of a far match, which has two more bytes
	minFarMatch = 5                       // shortest far match, which is encoded in five bytes
	longMatch   = 7                       // value of the three length bits if more length follows
	farHigh     = 31                      // value of the five distance bits of a far match
	farLow      = 255                     // value of the low distance byte of a far match

	hashBits = 13 // logarithm of the size of the table of positions
	// guard is how many bytes at the end are always literals.
	guard = 12
)

// Compress appends the packed form of src to dst. It appends nothing if src is too short to
// be packed; the result may be longer than src.
func Compress(dst, src []byte) []byte {
	if len(src) < minInput {
		return dst
	}
	p := packer{dst: dst, src: src, level: 1, first: len(dst)}
	if len(src) >= level2Size {
		p.level = 2
	}
	p.packBlock()
	p.dst[p.first] |= byte(p.level-1) << 5
	return p.dst
}

// A packer is the state of one block that is being packed.
type packer struct {
	dst, src []byte               // output so far; input
	first    int                  // offset of the block in dst
	level    int                  // 1 or 2
	anchor   int                  // offset of the first byte of src that is not packed
	seen     [1 << hashBits]int32 // last position of each hash of three bytes, plus one; 0 if none
}

// packBlock packs all of src.
func (p *packer) packBlock() {
	for at := 1; at < len(p.src)-guard; { // a block begins with a literal
		from := p.findMatch(at)
		if from < 0 {
			at++
			continue
		}
		n := p.matchLength(from, at)
		if distance := at - from; distance > maxDistance && n < minFarMatch {
			at++
			continue
		}
		p.appendLiterals(at)
		p.appendMatch(at-from, n)
		at += n
		p.anchor = at
	}
	p.appendLiterals(len(p.src))
}

// findMatch returns an earlier position with the same three bytes as at, or -1, and records at.
func (p *packer) findMatch(at int) int {
	word := binary.LittleEndian.Uint32(p.src[at:]) & 0xffffff
	h := word * 2654435769 >> (32 - hashBits)
	from := int(p.seen[h]) - 1 // stored from one: zero is empty
	p.seen[h] = int32(at + 1)
	reach := maxDistance
	if p.level == 2 {
		reach = maxFar
	}
	if from < 0 || at-from > reach || binary.LittleEndian.Uint32(p.src[from:])&0xffffff != word {
		return -1
	}
	return from
}

// matchLength returns the length of the match of the bytes at the two positions.
func (p *packer) matchLength(from, at int) int {
	n, end := minMatch, len(p.src)-guard/2
	if p.level == 1 {
		end = min(end, at+maxLength1)
	}
	for at+n < end && p.src[from+n] == p.src[at+n] {
		n++
	}
	return n
}

// appendLiterals packs the bytes from anchor to end as literals.
func (p *packer) appendLiterals(end int) {
	for p.anchor < end {
		n := min(maxLiterals, end-p.anchor)
		p.dst = append(p.dst, byte(n-1))
		p.dst = append(p.dst, p.src[p.anchor:p.anchor+n]...)
		p.anchor += n
	}
}

// appendMatch appends a match instruction.
func (p *packer) appendMatch(distance, length int) {
	length -= 2
	far := -1
	if p.level == 2 && distance > maxDistance {
		far = distance - maxDistance - 1
		distance = farHigh<<8 + farLow + 1
	}
	distance--
	p.dst = append(p.dst, byte(min(length, longMatch)<<5|distance>>8))
	if length >= longMatch {
		p.appendLength(length - longMatch)
	}
	p.dst = append(p.dst, byte(distance))
	if far >= 0 {
		p.dst = binary.BigEndian.AppendUint16(p.dst, uint16(far))
	}
}

// appendLength appends the rest of a long length: one byte at level 1, as many as needed at level 2.
func (p *packer) appendLength(rest int) {
	for ; p.level == 2 && rest >= 255; rest -= 255 {
		p.dst = append(p.dst, 255)
	}
	p.dst = append(p.dst, byte(rest))
}

// errShort is the error of a truncated block.
var errShort = errors.New("fastlz: the block ends in the middle of an instruction")

// Decompress unpacks src into dst, which must have the exact length of the original.
func Decompress(dst, src []byte) error {
	if len(src) == 0 {
		return errShort
	}
	u := unpacker{dst: dst, src: src, level: int(src[0]>>5) + 1}
	if u.level > 2 {
		return fmt.Errorf("fastlz: level %d", u.level)
	}
	control := u.nextByte() & 31
	for {
		if err := u.runInstruction(control); err != nil {
			return err
		}
		if len(u.src) == 0 {
			break
		}
		control = u.nextByte()
	}
	if u.at != len(dst) {
		return fmt.Errorf("fastlz: %d bytes unpacked, want %d", u.at, len(dst))
	}
	return nil
}

// An unpacker is the state of one block that is being unpacked.
type unpacker struct {
	dst, src []byte // output; input that is not consumed
	at       int    // number of bytes in dst that are unpacked
	level    int    // 1 or 2
	short    bool   // whether a read went beyond the end of src
}

// nextByte consumes a byte of src. At the end it returns 0 and sets short.
func (u *unpacker) nextByte() byte {
	if len(u.src) == 0 {
		u.short = true
		return 0
	}
	b := u.src[0]
	u.src = u.src[1:]
	return b
}

// runInstruction executes one instruction, whose first byte is control.
func (u *unpacker) runInstruction(control byte) error {
	if control < maxLiterals {
		n := int(control) + 1
		if n > len(u.src) || n > len(u.dst)-u.at {
			return errShort
		}
		u.at += copy(u.dst[u.at:], u.src[:n])
		u.src = u.src[n:]
		return nil
	}
	length := int(control>>5) + 2
	if control>>5 == longMatch {
		for b := byte(255); b == 255; {
			b = u.nextByte()
			length += int(b)
			if u.level == 1 || length > len(u.dst) {
				break
			}
		}
	}
	high, low := int(control&31), int(u.nextByte())
	distance := high<<8 + low + 1
	if u.level == 2 && high == farHigh && low == farLow {
		distance = int(u.nextByte())<<8 + int(u.nextByte()) + maxDistance + 1
	}
	if u.short {
		return errShort
	}
	if distance > u.at || length > len(u.dst)-u.at {
		return fmt.Errorf("fastlz: match of %d bytes, %d back, at %d of %d", length, distance, u.at, len(u.dst))
	}
	for range length { // byte by byte: a match may overlap itself
		u.dst[u.at] = u.dst[u.at-distance]
		u.at++
	}
	return nil
}
