package ntfs

import "fmt"

const (
	maxUnit   = 64 << 10 // bytes that NTFS compresses as one unit: 16 clusters of 4 KiB
	chunkSize = 4096     // bytes that LZNT1 compresses as one chunk
)

// readUnits fills p from a compressed value. It decompresses each unit that the range touches, and
// charges the units to the budget.
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

// readUnit returns the content of unit i. A unit with all its clusters is stored uncompressed; one
// without clusters is zeros; otherwise the first clusters contain the compressed data.
func (s *stream) readUnit(i int64) ([]byte, error) {
	unit := make([]byte, s.unit*s.v.clusterSize)
	// stored is the number of clusters at the beginning of the unit that are allocated.
	stored := int64(0)
	for stored < s.unit {
		r, ok := s.findRun(i*s.unit + stored)
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
	return unit, decompress(unit, packed)
}

// decompress decompresses LZNT1 data into dst. It leaves the rest of dst unchanged if the data ends
// early. The format is [MS-XCA], section 2.5.
func decompress(dst, src []byte) error {
	for len(src) >= 2 && len(dst) > 0 {
		// A chunk header has the size minus one in 12 bits and a flag for compressed data in bit 15.
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
		} else if err := decompressChunk(out, src[2:2+size]); err != nil {
			return err
		}
		dst, src = dst[len(out):], src[2+size:]
	}
	return nil
}

// decompressChunk decompresses one chunk. It consists of groups: a byte of flags, and for each flag,
// from bit 0 on, a literal byte or two bytes with distance and length.
func decompressChunk(dst, src []byte) error {
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
			back, length := splitReference(le16(src, 0), at)
			if back > at || length > len(dst)-at {
				return fmt.Errorf("%w: %d bytes from %d back, at %d of %d", errCorrupt, length, back, at, len(dst))
			}
			for end := at + length; at < end; at++ { // byte by byte, because source and destination may overlap
				dst[at] = dst[at-back]
			}
			src = src[2:]
		}
	}
	return nil
}

// splitReference splits a reference into distance and length. The distance has 4 bits at the beginning
// of the chunk and up to 12 bits further on, as the offset at requires.
func splitReference(pair uint16, at int) (back, length int) {
	// Each doubling of the position beyond 16 moves one bit from length to distance.
	lengthBits := 12
	for reach := at - 1; reach >= 0x10; reach >>= 1 {
		lengthBits--
	}
	return int(pair>>lengthBits) + 1, int(pair&(1<<lengthBits-1)) + 3
}
