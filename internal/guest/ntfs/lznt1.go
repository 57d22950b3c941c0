package ntfs

import "fmt"

const (
	maxUnit   = 64 << 10 // bytes that NTFS compresses together: 16 clusters of 4 KiB
	chunkSize = 4096     // bytes that LZNT1 compresses at once
)

// readUnits fills p from a compressed value, one unit after the other.
func (s *stream) readUnits(p []byte, off int64) error {
	size := s.unit * s.v.clusterSize
	for len(p) > 0 {
		if err := s.v.r.Budget().Unpack(size); err != nil {
			return err
		}
		unit, err := s.readUnit(off / size)
		if err != nil {
			return fmt.Errorf("compressed unit at byte %d: %w", off/size*size, err)
		}
		n := copy(p, unit[off%size:])
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// readUnit reads one unit. With all of its clusters it is stored as it is, without any
// it is zeros, and in between it is compressed into those that come first.
func (s *stream) readUnit(i int64) ([]byte, error) {
	unit := make([]byte, s.unit*s.v.clusterSize)
	stored := int64(0)
	for stored < s.unit {
		r, ok := s.find(i*s.unit + stored)
		if !ok || r.lcn == hole {
			break
		}
		stored = min(r.end()-i*s.unit, s.unit)
	}
	if stored == 0 {
		return unit, nil
	}
	packed := make([]byte, stored*s.v.clusterSize)
	if err := s.readRuns(packed, i*s.unit*s.v.clusterSize); err != nil {
		return nil, err
	}
	if stored == s.unit {
		return packed, nil
	}
	return unit, unpack(unit, packed)
}

// unpack decompresses LZNT1 into dst, whose rest stays as it is. The format is that of
// [MS-XCA], section 2.5.
func unpack(dst, src []byte) error {
	for len(src) >= 2 && len(dst) > 0 {
		header := le16(src, 0)
		if header == 0 {
			return nil
		}
		size := int(header&0xfff) + 1
		if size > len(src)-2 {
			return fmt.Errorf("%w: a chunk of %d bytes, where %d are left", errCorrupt, size, len(src)-2)
		}
		out := dst[:min(chunkSize, len(dst))]
		if header&0x8000 == 0 {
			copy(out, src[2:2+size])
		} else if err := unpackChunk(out, src[2:2+size]); err != nil {
			return err
		}
		dst, src = dst[len(out):], src[2+size:]
	}
	return nil
}

// unpackChunk decompresses one chunk: a byte of flags, then for each of its bits, from
// the lowest on, a byte as it is, or two that say how far back and how long.
func unpackChunk(dst, src []byte) error {
	at := 0
	for len(src) > 0 {
		flags := src[0]
		src = src[1:]
		for bit := 0; bit < 8 && len(src) > 0; bit, flags = bit+1, flags>>1 {
			if at == len(dst) {
				return fmt.Errorf("%w: a chunk holds more than %d bytes", errCorrupt, len(dst))
			}
			if flags&1 == 0 {
				dst[at], src, at = src[0], src[1:], at+1
				continue
			}
			if len(src) < 2 {
				return fmt.Errorf("%w: a chunk ends within a reference", errCorrupt)
			}
			back, length := reference(le16(src, 0), at)
			if back > at || length > len(dst)-at {
				return fmt.Errorf("%w: %d bytes from %d back, at %d of %d", errCorrupt, length, back, at, len(dst))
			}
			for end := at + length; at < end; at++ { // byte by byte: it may overlap itself
				dst[at] = dst[at-back]
			}
			src = src[2:]
		}
	}
	return nil
}

// reference splits a pair of distance and length: the further into the chunk, the more
// bits the distance has.
func reference(pair uint16, at int) (back, length int) {
	lengthBits := 12
	for reach := at - 1; reach >= 0x10; reach >>= 1 {
		lengthBits--
	}
	return int(pair>>lengthBits) + 1, int(pair&(1<<lengthBits-1)) + 3
}
