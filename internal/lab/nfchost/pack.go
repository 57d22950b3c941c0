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
	packNone   = 0
	packZlib   = 1
	packFastLZ = 2
	packSkipZ  = 3
)

// varietyEvery is which fragments Packing Variety stores.
const varietyEvery = 3

// packFragment compresses a fragment as the read asked for, unless that makes it no shorter.
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

// usePacked makes the fragment's data what squeeze left in packed. No data is data that
// cannot be packed.
func (s *session) usePacked(f *fragment, packing uint32, packed []byte) {
	if len(packed) > fragmentRoom {
		s.packed, f.packing, f.data = packed, packing, packed[fragmentRoom:]
	}
}

// compressData returns room for the headers and the packed data. It reuses the memory of packed.
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

func appendZlib(p, data []byte) []byte {
	w := bytes.NewBuffer(p)
	z, _ := zlib.NewWriterLevel(w, zlib.BestSpeed) // the level is a good one
	_, _ = z.Write(data)                           // a Buffer takes everything
	_ = z.Close()
	return w.Bytes()
}

// skipGap is how many zeros end a run: less would cost more as the start of another.
const skipGap = 8

var skipZeros [skipGap]byte

// appendSkipZ writes the length, a zero word, and each run of data as start, length, bytes.
func appendSkipZ(p, data []byte) []byte {
	le := binary.LittleEndian
	p = le.AppendUint32(p, uint32(len(data)))
	p = le.AppendUint32(p, 0)
	for at := firstData(data, 0); at < len(data); {
		end := len(data)
		if i := bytes.Index(data[at:], skipZeros[:]); i >= 0 {
			end = at + i
		}
		for end > at && data[end-1] == 0 { // at the very end of data
			end--
		}
		p = le.AppendUint32(p, uint32(at))
		p = le.AppendUint32(p, uint32(end-at))
		p = append(p, data[at:end]...)
		at = firstData(data, end)
	}
	return p
}

// firstData returns the first byte from at on that is not zero, or len(data).
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
