package vsphere

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// content is the content of a disk. Its methods may be called concurrently.
type content interface {
	io.ReaderAt
	Size() int64 // returns the capacity in bytes
	// nextData returns the first data run that ends after off, or Size, Size. A run may
	// begin before off and neighbouring runs may touch.
	nextData(off int64) (start, end int64, err error)
	Close() error // releases files
}

// A rawContent is a raw image, opened read-only in place. Holes of the file are holes of the disk.
// Capacity beyond the file reads as zeros.
type rawContent struct {
	f        *os.File // the image
	size     int64    // length of the file in bytes
	capacity int64    // capacity of the disk in bytes

	mu sync.Mutex // guards the position of f, which SEEK_DATA and SEEK_HOLE move
}

// openRaw opens a raw image. A capacity of 0 is the size of the file, rounded up to sectors. An image
// larger than the capacity is an error.
func openRaw(path string, capacity int64) (*rawContent, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("size of %s: %w", path, err)
	}
	if capacity == 0 {
		capacity = (size + 511) / 512 * 512
	}
	if size > capacity {
		f.Close()
		return nil, fmt.Errorf("%s has %d bytes, more than the disk's capacity of %d", path, size, capacity)
	}
	return &rawContent{f: f, size: size, capacity: capacity}, nil
}

// Size returns the capacity in bytes.
func (c *rawContent) Size() int64 { return c.capacity }

// Close closes the image.
func (c *rawContent) Close() error { return c.f.Close() }

// ReadAt implements io.ReaderAt.
func (c *rawContent) ReadAt(p []byte, off int64) (int, error) {
	n, eof := clipRead(p, off, c.capacity)
	got, err := 0, error(nil)
	if off < c.size {
		got, err = c.f.ReadAt(p[:min(int64(n), c.size-off)], off)
	}
	if err != nil {
		return got, err
	}
	clear(p[got:n]) // beyond the end of the file
	return n, eof
}

// nextData implements content.
func (c *rawContent) nextData(off int64) (start, end int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if off >= c.size { // the capacity beyond the file is a hole
		return c.capacity, c.capacity, nil
	}
	start, err = unix.Seek(int(c.f.Fd()), off, unix.SEEK_DATA)
	if err == unix.ENXIO { // no data after off, see lseek(2)
		return c.capacity, c.capacity, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("seek data in %s: %w", c.f.Name(), err)
	}
	end, err = unix.Seek(int(c.f.Fd()), start, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, fmt.Errorf("seek hole in %s: %w", c.f.Name(), err)
	}
	return start, end, nil
}

// clipRead returns the number of bytes of a read of p at off inside size, and io.EOF if that is less
// than len(p).
func clipRead(p []byte, off, size int64) (int, error) {
	if off >= size {
		return 0, io.EOF
	}
	if int64(len(p)) > size-off {
		return int(size - off), io.EOF
	}
	return len(p), nil
}

// allocatedBytes returns the length of all data runs of c, each rounded outwards to granularity.
func allocatedBytes(c content, granularity int64) (int64, error) {
	var sum, reached int64
	for off := int64(0); off < c.Size(); {
		start, end, err := nextArea(c, off, granularity)
		if err != nil {
			return 0, err
		}
		start = max(start, reached)
		sum += max(0, end-start)
		reached, off = end, end
	}
	return sum, nil
}

// nextArea returns the next data at or after off, rounded outwards to granularity and merged with
// adjacent runs. Without further data it returns Size, Size.
func nextArea(c content, off, granularity int64) (start, end int64, err error) {
	start, end, err = nextRounded(c, off, granularity)
	for err == nil && end < c.Size() {
		s, e, err := nextRounded(c, end, granularity)
		if err != nil || s > end || e == end { // the next run does not touch this one
			return start, end, err
		}
		end = e
	}
	return start, end, err
}

// nextRounded returns the next data run that ends after off, rounded outwards to granularity.
func nextRounded(c content, off, granularity int64) (start, end int64, err error) {
	start, end, err = c.nextData(off)
	if err != nil || start >= c.Size() {
		return c.Size(), c.Size(), err
	}
	start = max(off, start/granularity*granularity)
	end = min(c.Size(), (end+granularity-1)/granularity*granularity)
	return start, end, nil
}
