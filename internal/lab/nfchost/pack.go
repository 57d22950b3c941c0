package nfchost

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"math/bits"

	"github.com/decamp/decamp/internal/lab/fastlz"
)

// How the data of a fragment is packed.
const (
	packNone   = 0 // stored
	packZlib   = 1 // zlib (RFC 1950)
	packFastLZ = 2 // FastLZ, without a length in front
	packSkipZ  = 3 // runs of data between zeros
)

// varietyEvery is the period of stored fragments with Variety.
const varietyEvery = 3

// packFragment compresses a fragment as the read requests. A fragment that would not shrink is stored.
func (s *session) packFragment(r *readJob, f *fragment) {
	asked := r.u32(12)
	if s.rules.Packing == Variety {
		s.variety++
	}
	if asked == packNone || s.rules.Packing == Stored || s.rules.Packing == Variety && s.variety%varietyEvery == 0 {
		return
	}
	s.usePacked(f, asked, s.compressData(asked, f.data))
	if len(f.data) >= int(f.length) {
		f.packing, f.data = packNone, s.scratch[fragmentRoom:fragmentRoom+f.length]
	}
}

// usePacked makes packed, which begins with room for the headers, the data of the fragment. An empty
// result of compression is ignored.
func (s *session) usePacked(f *fragment, packing uint32, packed []byte) {
	if len(packed) > fragmentRoom {
		s.packed, f.packing, f.data = packed, packing, packed[fragmentRoom:]
	}
}

// compressData returns room for the headers and the compressed data. It reuses the memory of s.packed.
func (s *session) compressData(packing uint32, data []byte) []byte {
	if cap(s.packed) < fragmentRoom {
		s.packed = make([]byte, fragmentRoom, fragmentRoom+2*s.buffer)
	}
	p := s.packed[:fragmentRoom]
	switch packing {
	case packZlib:
		return appendZlib(p, data)
	case packFastLZ:
		return fastlz.Compress(p, data)
	}
	return appendSkipZ(p, data)
}

// appendZlib appends data in zlib format, at the fastest level.
func appendZlib(p, data []byte) []byte {
	w := bytes.NewBuffer(p)
	z, _ := zlib.NewWriterLevel(w, zlib.BestSpeed) // the level is valid
	_, _ = z.Write(data)                           // a Buffer returns no error
	_ = z.Close()
	return w.Bytes()
}

// skipGap is the number of zeros that end a run: the start of another run costs 8 bytes.
const skipGap = 8

// skipZeros is the sequence that ends a run.
var skipZeros [skipGap]byte

// appendSkipZ appends the length of data, a zero word, and each run as start, length and bytes.
func appendSkipZ(p, data []byte) []byte {
	le := binary.LittleEndian
	p = le.AppendUint32(p, uint32(len(data)))
	p = le.AppendUint32(p, 0)
	for at := firstData(data, 0); at < len(data); {
		end := len(data)
		if i := bytes.Index(data[at:], skipZeros[:]); i >= 0 {
			end = at + i
		}
		for end > at && data[end-1] == 0 { // zeros at the end of data have no run after them
			end--
		}
		p = le.AppendUint32(p, uint32(at))     // start of the run
		p = le.AppendUint32(p, uint32(end-at)) // length of the run
		p = append(p, data[at:end]...)
		at = firstData(data, end)
	}
	return p
}

// firstData returns the offset of the first non-zero byte at or after at, or len(data).
func firstData(data []byte, at int) int {
	for ; at+8 <= len(data); at += 8 {
		if word := binary.LittleEndian.Uint64(data[at:]); word != 0 {
			return at + bits.TrailingZeros64(word)/8
		}
	}
	for at < len(data) && data[at] == 0 {
		at++
	}
	return at
}
