package inflate

import (
	"bytes"
	"hash/adler32"
	"testing"
)

func TestAdlerMatchesTheLibrary(t *testing.T) {
	for _, b := range [][]byte{testContent("random", 300_000), bytes.Repeat([]byte{0xff}, 300_000), make([]byte, 300_000)} {
		for n := 0; n < len(b); n += 1 + n/3 {
			if got, want := adlerSum(b[:n]), adler32.Checksum(b[:n]); got != want {
				t.Fatalf("%d bytes of %#02x…: got %08x, want %08x", n, b[0], got, want)
			}
		}
		for n := range 1000 {
			if got, want := adlerSum(b[n:2*n]), adler32.Checksum(b[n:2*n]); got != want {
				t.Fatalf("%d bytes of %#02x…: got %08x, want %08x", n, b[0], got, want)
			}
		}
	}
}

func BenchmarkAdler(b *testing.B) {
	p := testContent("random", 64<<10)
	b.Run("inflate", func(b *testing.B) {
		b.SetBytes(int64(len(p)))
		for b.Loop() {
			adlerSum(p)
		}
	})
	b.Run("stdlib", func(b *testing.B) {
		b.SetBytes(int64(len(p)))
		for b.Loop() {
			adler32.Checksum(p)
		}
	})
}
