// Package fastlz decodes FastLZ blocks, as ESXi sends them over NFC. One call decodes one block,
// from a whole compressed buffer into a whole output buffer.
//
// # The format
//
// A block is a sequence of instructions. The top three bits of the first byte are the level minus
// one. Its low five bits are the first instruction, a run of literals. After it:
//
//	000nnnnn                  n+1 literal bytes follow
//	lllddddd [more] dddddddd  copy l+2 bytes from distance d+1 before; l = 7: more length follows
//
// At level 1, more length is one byte. At level 2, bytes are added up to the first that is not 255,
// and a distance of all ones is followed by two more bytes, big-endian, to which 8192 is added. The
// format is public (FastLZ, MIT); the test vector of level 2 was made with its C library.
//
// # Guarantees
//
// The package never reads outside src or writes outside dst, whatever src contains. It does not
// allocate. After an error the content of dst is undefined.
package fastlz

import (
	"errors"
	"fmt"
)

// ErrCorrupt is wrapped by every error: src is no FastLZ block of len(dst) bytes.
var ErrCorrupt = errors.New("invalid FastLZ data")

const (
	levelShift  = 5          // position of the level in the first byte
	runMask     = 0x1f       // mask of the first instruction in the first byte, which is a run of literals
	firstMatch  = 1 << 5     // smallest instruction that is a match
	matchExtra  = 2          // difference between the length of a match and its field
	longMatch   = 7          // length field after which more length follows
	moreLength  = 255        // length byte after which another one follows, at level 2
	nearWindow  = 1 << 13    // distances up to this fit into an instruction
	farDistance = nearWindow // added to a distance of two more bytes, at level 2
)

// Decode fills dst from src. A block that contains less or more than len(dst) bytes is an error.
func Decode(dst, src []byte) error {
	if len(src) == 0 {
		return corruptAt(0, "the block is empty")
	}
	level := src[0]>>levelShift + 1
	if level > 2 {
		return corruptAt(0, "level %d", level)
	}
	d := decoder{dst: dst, src: src, at: 1, level2: level == 2}
	return d.decodeBlock(src[0] & runMask)
}

// A decoder is the state of one Decode.
type decoder struct {
	dst, src []byte
	at       int  // position in src
	out      int  // position in dst
	level2   bool // the block has level 2
}

// decodeBlock executes instructions until src ends. op is the first one.
func (d *decoder) decodeBlock(op byte) error {
	for {
		var err error
		if op < firstMatch {
			err = d.copyLiterals(int(op) + 1)
		} else {
			err = d.copyMatch(op)
		}
		switch {
		case err != nil:
			return err
		case d.at == len(d.src) && d.out == len(d.dst):
			return nil
		case d.at == len(d.src):
			return corruptAt(d.at, "it ends after %d of %d bytes", d.out, len(d.dst))
		}
		op = d.src[d.at]
		d.at++
	}
}

// copyLiterals copies n bytes from src.
func (d *decoder) copyLiterals(n int) error {
	if n > len(d.src)-d.at || n > len(d.dst)-d.out {
		return corruptAt(d.at, "%d literals do not fit", n)
	}
	copy(d.dst[d.out:d.out+n], d.src[d.at:])
	d.at += n
	d.out += n
	return nil
}

// copyMatch executes a match instruction.
func (d *decoder) copyMatch(op byte) error {
	n := int(op>>levelShift) + matchExtra
	if op>>levelShift == longMatch {
		more, err := d.readLength()
		if err != nil {
			return err
		}
		n += more
	}
	distance, err := d.readDistance(int(op&runMask) << 8)
	if err != nil {
		return err
	}
	if distance > d.out || n > len(d.dst)-d.out {
		return corruptAt(d.at, "a match of %d bytes from %d before does not fit", n, distance)
	}
	d.copyRepeated(distance, n)
	return nil
}

// readLength reads the rest of the length of a long match. It stops when the sum is larger than dst.
func (d *decoder) readLength() (sum int, err error) {
	for {
		b, err := d.nextByte()
		if err != nil {
			return 0, err
		}
		sum += int(b)
		if !d.level2 || b != moreLength || sum > len(d.dst) {
			return sum, nil
		}
	}
}

// readDistance reads the rest of a distance. high are its upper bits.
func (d *decoder) readDistance(high int) (int, error) {
	low, err := d.nextByte()
	if err != nil {
		return 0, err
	}
	near := high + int(low) + 1
	if !d.level2 || near != nearWindow {
		return near, nil
	}
	if len(d.src)-d.at < 2 {
		return 0, corruptAt(d.at, "it ends within a distance")
	}
	far := int(d.src[d.at])<<8 | int(d.src[d.at+1])
	d.at += 2
	return far + farDistance, nil
}

// nextByte returns the next byte of an instruction.
func (d *decoder) nextByte() (byte, error) {
	if d.at == len(d.src) {
		return 0, corruptAt(d.at, "it ends within a match")
	}
	d.at++
	return d.src[d.at-1], nil
}

// copyRepeated copies n bytes from distance before. If the two ranges overlap, each copy doubles the
// available bytes.
func (d *decoder) copyRepeated(distance, n int) {
	from, end := d.out-distance, d.out+n
	for d.out < end {
		d.out += copy(d.dst[d.out:end], d.dst[from:d.out])
	}
}

// corruptAt returns an error with the position in src.
func corruptAt(at int, format string, args ...any) error {
	return fmt.Errorf("%w at %d: %s", ErrCorrupt, at, fmt.Sprintf(format, args...))
}
