package inflate

import "encoding/binary"

const (
	// number of input bytes that one turn of the fast loop may use: two fills of 8 bytes, each of which
	// advances by at most 7
	fastIn = 16
	// number of output bytes that one turn may write: two literals, the longest match, and 7 bytes after
	// it because matches are copied in words
	fastOut = 2 + 258 + 8
)

// decodeBlock decodes the literals and matches of a block, including its end.
func (s *input) decodeBlock(lit *litTable, dist *distTable) error {
	for {
		ended, err := s.decodeFast(lit, dist)
		if ended || err != nil {
			return err
		}
		// The buffers may end soon: decode one symbol with checks, then try again. A block
		// that begins near the end of the output stays here.
		if ended, err = s.decodeSymbol(lit, dist); ended || err != nil {
			return err
		}
	}
}

// decodeFast decodes while neither buffer can end within a turn. It reports whether the block has
// ended. Local variables stay in registers. That, one branch for a literal, and tables without bounds
// checks make it fast.
func (s *input) decodeFast(lit *litTable, dist *distTable) (ended bool, err error) {
	src, dst := s.src, s.dst
	pos, out, bits, n := s.pos, s.out, s.bits, s.n
	for pos <= len(src)-fastIn && out <= len(dst)-fastOut {
		bits |= binary.LittleEndian.Uint64(src[pos:]) << (n & 63)
		pos += int((63 - n) >> 3)
		n |= 56
		e := lit[bits&litMask]
		if e&literal != 0 {
			bits >>= e & 63
			n -= uint(e & 63)
			dst[out] = byte(e >> 16)
			out++
			e = lit[bits&litMask]
			if e&literal != 0 {
				bits >>= e & 63
				n -= uint(e & 63)
				dst[out] = byte(e >> 16)
				out++
				e = lit[bits&litMask]
				if e&literal != 0 {
					bits >>= e & 63
					n -= uint(e & 63)
					dst[out] = byte(e >> 16)
					out++
					continue
				}
			}
		}
		if e&special != 0 {
			if e&subtable != 0 {
				bits >>= litBits
				n -= litBits
				e = lit[(e>>16+uint32(bits)&(1<<(e>>8&15)-1))&(litSize-1)]
			}
			if e&literal != 0 {
				bits >>= e & 63
				n -= uint(e & 63)
				dst[out] = byte(e >> 16)
				out++
				continue
			}
			if e&special != 0 {
				bits >>= e & 63
				n -= uint(e & 63)
				if e&endOfBlock == 0 {
					err = ErrCorrupt
				}
				ended = true
				break
			}
		}
		length := int(e>>16 + uint32(bits)&(1<<(e&63)-1)>>(e>>8&15))
		bits >>= e & 63
		n -= uint(e & 63)

		bits |= binary.LittleEndian.Uint64(src[pos:]) << (n & 63)
		pos += int((63 - n) >> 3)
		n |= 56
		e = dist[bits&distMask]
		if e&special != 0 {
			if e&subtable == 0 {
				err = ErrCorrupt
				break
			}
			bits >>= distBits
			n -= distBits
			e = dist[(e>>16+uint32(bits)&(1<<(e>>8&15)-1))&(distSize-1)]
			if e&special != 0 {
				err = ErrCorrupt
				break
			}
		}
		from := out - int(e>>16+uint32(bits)&(1<<(e&63)-1)>>(e>>8&15))
		bits >>= e & 63
		n -= uint(e & 63)
		if from < 0 {
			err = ErrCorrupt
			break
		}
		end := out + length
		switch {
		case out-from >= 8:
			for out < end {
				word := binary.LittleEndian.Uint64(dst[from:])
				binary.LittleEndian.PutUint64(dst[out:], word)
				out += 8
				from += 8
			}
		case out-from == 1:
			word := uint64(dst[from]) * 0x0101010101010101
			for out < end {
				binary.LittleEndian.PutUint64(dst[out:], word)
				out += 8
			}
		default:
			for out < end {
				dst[out] = dst[from]
				out++
				from++
			}
		}
		out = end
	}
	s.pos, s.out, s.bits, s.n = pos, out, bits&(1<<(n&63)-1), n
	return ended, err
}

// decodeSymbol decodes one symbol and checks every step. It reports whether the block has ended.
func (s *input) decodeSymbol(lit *litTable, dist *distTable) (ended bool, err error) {
	e, err := s.nextSymbol(lit[:], litBits)
	switch {
	case err != nil:
		return false, err
	case e&literal != 0:
		if s.out == len(s.dst) {
			return false, ErrTooLong
		}
		s.dst[s.out] = byte(e >> 16)
		s.out++
		return false, nil
	case e&endOfBlock != 0:
		return true, nil
	}
	length, err := s.addExtraBits(e)
	if err != nil {
		return false, err
	}
	if e, err = s.nextSymbol(dist[:], distBits); err != nil {
		return false, err
	}
	distance, err := s.addExtraBits(e)
	if err != nil {
		return false, err
	}
	return false, s.copyMatch(int(length), int(distance))
}

// nextSymbol reads the code of the next symbol without its extra bits, and returns its entry.
func (s *input) nextSymbol(table []uint32, primary uint) (uint32, error) {
	s.fillBits()
	skip := uint(0)
	e := table[s.bits&(1<<primary-1)]
	if e&subtable != 0 {
		skip = primary
		e = table[e>>16+uint32(s.bits>>primary)&(1<<(e>>8&15)-1)]
	}
	code := skip + uint(e>>8&15)
	switch {
	case e&flags == invalid && s.n < maxCode:
		return 0, ErrTruncated // or it would be valid with the bits that are missing
	case e&flags == invalid:
		return 0, ErrCorrupt
	case code > s.n:
		return 0, ErrTruncated
	}
	s.bits >>= code
	s.n -= code
	return e, nil
}

// addExtraBits reads the extra bits of a length or distance, and returns its value.
func (s *input) addExtraBits(e uint32) (uint, error) {
	extra, err := s.takeBits(uint(e&63) - uint(e>>8&15))
	return uint(e>>16) + extra, err
}

// copyMatch appends length bytes from distance bytes before.
func (s *input) copyMatch(length, distance int) error {
	if distance > s.out {
		return ErrCorrupt
	}
	if length > len(s.dst)-s.out {
		return ErrTooLong
	}
	for end := s.out + length; s.out < end; s.out++ {
		s.dst[s.out] = s.dst[s.out-distance]
	}
	return nil
}
