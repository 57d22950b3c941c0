package nfc

import (
	"errors"
	"fmt"
)

const (
	skipHead = 8 // header: the fragment's length, and an unused word
	skipRun  = 8 // start and length of a run, before its bytes
)

// errSkipZ reports data that is not a valid SkipZ fragment.
var errSkipZ = errors.New("invalid SkipZ data")

// decodeSkipZ decodes a SkipZ fragment into dst and sets all of it. A fragment contains runs of bytes
// in ascending order; all other bytes are zero.
func decodeSkipZ(dst, src []byte) error {
	if len(src) < skipHead {
		return fmt.Errorf("%w: %d bytes", errSkipZ, len(src))
	}
	if n := le.Uint32(src); uint64(n) != uint64(len(dst)) {
		return fmt.Errorf("%w: it is of %d bytes", errSkipZ, n)
	}
	at := 0 // end of the last run in dst
	for src = src[skipHead:]; len(src) > 0; {
		if len(src) < skipRun {
			return fmt.Errorf("%w: it ends within a run", errSkipZ)
		}
		start, n := uint64(le.Uint32(src)), uint64(le.Uint32(src[4:]))
		src = src[skipRun:]
		if start < uint64(at) || start+n > uint64(len(dst)) || n > uint64(len(src)) {
			return fmt.Errorf("%w: a run of %d bytes at %d after %d", errSkipZ, n, start, at)
		}
		clear(dst[at:start])
		copy(dst[start:start+n], src)
		src, at = src[n:], int(start+n)
	}
	clear(dst[at:])
	return nil
}
