package disk

import "bytes"

// zeroPiece is what AllZero compares with: it stays in the processor's first cache.
var zeroPiece [16 << 10]byte

// AllZero reports whether p holds nothing but zeros. It stops at the first piece that has more, so
// that data costs next to nothing.
func AllZero(p []byte) bool {
	for len(p) > 0 {
		n := min(len(p), len(zeroPiece))
		if !bytes.Equal(p[:n], zeroPiece[:n]) {
			return false
		}
		p = p[n:]
	}
	return true
}
