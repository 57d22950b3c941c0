package disk

import "bytes"

// zeroPiece is the memory that AllZero compares with. It fits into the first-level cache of a
// processor.
var zeroPiece [16 << 10]byte

// AllZero reports whether p contains only zeros. It stops at the first piece with other bytes, so it is
// fast for data.
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
