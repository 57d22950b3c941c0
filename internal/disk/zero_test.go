package disk

import "testing"

func TestAllZero(t *testing.T) {
	for _, n := range []int{0, 1, 511, len(zeroPiece), len(zeroPiece) + 1, 3*len(zeroPiece) + 7} {
		p := make([]byte, n)
		if !AllZero(p) {
			t.Errorf("AllZero of %d zeros is false", n)
		}
		for _, at := range []int{0, n / 2, n - 1} {
			if n == 0 {
				continue
			}
			p[at] = 1
			if AllZero(p) {
				t.Errorf("AllZero is true with byte %d of %d set", at, n)
			}
			p[at] = 0
		}
	}
}
