package inflate

import (
	"bytes"
	"compress/zlib"
	"io"
	"os"
	"testing"

	kzlib "github.com/klauspost/compress/zlib"
)

// programGrains splits the program of this benchmark into grains of 64 KiB and compresses them. Like a system
// disk, the program consists of code and tables.
func programGrains(b *testing.B) (packed [][]byte, size int64) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		b.Fatal(err)
	}
	const grain = 64 << 10
	for len(program) >= grain {
		packed = append(packed, compressZlib(b, program[:grain]))
		program, size = program[grain:], size+grain
	}
	return packed, size
}

// BenchmarkZlib inflates grains on one core, and compares this package with two other decoders, which are reused
// through their Resetter.
func BenchmarkZlib(b *testing.B) {
	packed, size := programGrains(b)
	dst := make([]byte, 64<<10)
	b.Run("inflate", func(b *testing.B) {
		b.SetBytes(size)
		var d Decoder
		for b.Loop() {
			for _, p := range packed {
				if _, _, err := d.Zlib(dst, p); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("klauspost", func(b *testing.B) {
		r, err := kzlib.NewReader(bytes.NewReader(packed[0]))
		if err != nil {
			b.Fatal(err)
		}
		benchReader(b, packed, size, dst, r, r.(kzlib.Resetter).Reset)
	})
	b.Run("stdlib", func(b *testing.B) {
		r, err := zlib.NewReader(bytes.NewReader(packed[0]))
		if err != nil {
			b.Fatal(err)
		}
		benchReader(b, packed, size, dst, r, r.(zlib.Resetter).Reset)
	})
}

func benchReader(b *testing.B, packed [][]byte, size int64, dst []byte, r io.Reader, reset func(io.Reader, []byte) error) {
	b.SetBytes(size)
	var in bytes.Reader
	for b.Loop() {
		for _, p := range packed {
			in.Reset(p)
			if err := reset(&in, nil); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(r, dst); err != nil {
				b.Fatal(err)
			}
			if _, err := r.Read(dst[:1]); err != io.EOF {
				b.Fatal(err)
			}
		}
	}
}
