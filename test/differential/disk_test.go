package differential

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

const (
	sector = 512
	grain  = 128 * sector
)

// A disk is a raw file with random content.
type disk struct {
	path string
	size int64
}

// randomSize returns a size that is difficult for readers: a few sectors, about one grain, or a size with or without a
// partial grain at the end.
func randomSize(r *rand.Rand) int64 {
	switch r.IntN(5) {
	case 0:
		return sector * (1 + r.Int64N(4))
	case 1:
		return grain + sector*(r.Int64N(3)-1)
	case 2:
		return grain * (1 + r.Int64N(80))
	case 3:
		return 1 << 20 * (1 + r.Int64N(5))
	}
	return sector * (1 + r.Int64N(12000))
}

// newDisk writes a disk with runs of random bytes, text and zeros, and with holes.
func newDisk(r *rand.Rand, path string, size int64) (d disk, err error) {
	f, err := os.Create(path)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(size); err != nil {
		return d, err
	}
	fill := r.IntN(4) // determines the share of runs with data: 10, 40, 70 or 100 %
	for off := int64(0); off < size; {
		n := min(size-off, sector*(1+r.Int64N([]int64{1, 8, 128, 300}[r.IntN(4)])))
		if r.IntN(10) <= fill*3 {
			if _, err := f.WriteAt(randomBytes(r, n), off); err != nil {
				return d, err
			}
		}
		off += n
	}
	return disk{path, size}, nil
}

func randomBytes(r *rand.Rand, n int64) []byte {
	switch r.IntN(3) {
	case 0:
		return bytes.Repeat([]byte("a line of text\n"), int(n/15+1))[:n]
	case 1:
		return make([]byte, n)
	}
	b := make([]byte, n)
	for i := 0; i+8 <= len(b); i += 8 {
		word := r.Uint64()
		for k := range 8 {
			b[i+k] = byte(word >> (8 * k))
		}
	}
	return b
}

// compare returns an error if the raw file at path differs from the disk.
func (d disk) compare(path string) error {
	got, err := os.Open(path)
	if err != nil {
		return err
	}
	defer got.Close()
	want, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer want.Close()
	info, err := got.Stat()
	if err != nil {
		return err
	}
	if info.Size() != d.size {
		return fmt.Errorf("%d bytes, the disk has %d", info.Size(), d.size)
	}
	a, b := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); off < d.size; off += int64(len(a)) {
		if off = min(nextData(got, off), nextData(want, off)); off >= d.size {
			break
		}
		n, err := got.ReadAt(a, off)
		if err != nil && err != io.EOF {
			return err
		}
		if _, err := want.ReadAt(b[:n], off); err != nil && err != io.EOF {
			return err
		}
		for i := 0; i < n; i += sector {
			if end := min(i+sector, n); !bytes.Equal(a[i:end], b[i:end]) {
				return fmt.Errorf("sector %d differs", (off+int64(i))/sector)
			}
		}
	}
	return nil
}

// nextData returns the offset of the sector with the next byte that is not in a hole.
func nextData(f *os.File, off int64) int64 {
	at, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO:
		return math.MaxInt64
	case err != nil: // the file system does not support SEEK_DATA
		return off
	}
	return at &^ (sector - 1)
}
