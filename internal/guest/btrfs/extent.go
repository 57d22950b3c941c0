package btrfs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

const (
	extentInline   = 0
	extentPrealloc = 2

	maxExtents = 1 << 18
	maxPacked  = 256 << 10 // bytes of a compressed extent, packed or not; the kernel makes 128 KiB
	maxRun     = 1 << 20   // bytes of one read
	minUnpack  = 64 << 10  // bytes that one extent counts for at least: each takes a decompressor
)

// An extent is a range of a file. A hole has none.
type extent struct {
	off, size int64 // bytes of the file
	how       byte  // compression: 0, 1 zlib, 2 LZO, 3 zstd
	inline    []byte
	at        uint64 // logical byte; 0 reads as zeros
	packed    int64  // bytes there, of a compressed extent
	whole     int64  // bytes of the whole, unpacked
	skip      int64  // bytes of the whole before those of the file
}

// unpacked is one compressed extent, by where it is.
type unpacked struct {
	at   uint64
	data []byte
}

// extents returns the extents of a file, in order.
func (n *node) extents() ([]extent, error) {
	if n.listed {
		return n.list, nil
	}
	var failed error
	err := n.fs.walk(n.volume, key{object: n.number, kind: keyExtent}, func(k key, data []byte) bool {
		if k.object != n.number || k.kind != keyExtent {
			return false
		}
		var e extent
		if e, failed = extentOf(k, data); failed == nil {
			n.list = append(n.list, e)
		}
		if l := len(n.list); failed == nil && (l > maxExtents || l > 1 && e.off < n.list[l-2].off+n.list[l-2].size) {
			failed = errors.New("extents that overlap, or too many")
		}
		return failed == nil
	})
	err = errors.Join(err, failed)
	n.listed = err == nil
	return n.list, err
}

func extentOf(k key, data []byte) (extent, error) {
	if len(data) < 21 || data[20] != extentInline && len(data) < 53 {
		return extent{}, fmt.Errorf("an extent of %d bytes", len(data))
	}
	e := extent{off: int64(k.offset), how: data[16], whole: int64(le64(data, 8))}
	switch {
	case data[17] != 0 || le16(data, 18) != 0:
		return e, errors.New("the file is encrypted")
	case data[20] == extentInline:
		e.inline, e.size = bytes.Clone(data[21:]), e.whole
		return e, e.check()
	}
	e.at, e.packed, e.skip, e.size = le64(data, 21), int64(le64(data, 29)), int64(le64(data, 37)), int64(le64(data, 45))
	if data[20] == extentPrealloc {
		e.at = 0
	}
	return e, e.check()
}

func (e extent) check() error {
	const max = 1 << 60
	for _, v := range []int64{e.off, e.size, e.packed, e.whole, e.skip} {
		if v < 0 || v > max {
			return fmt.Errorf("an extent of %d bytes at byte %d", e.size, e.off)
		}
	}
	switch {
	case e.size == 0:
		return errors.New("an extent of no bytes")
	case e.how != 0 && (e.whole > maxPacked || e.packed > maxPacked || e.skip+e.size > e.whole):
		return fmt.Errorf("a compressed extent of %d bytes, %d unpacked", e.packed, e.whole)
	case e.how == 0 && e.inline != nil && e.size > int64(len(e.inline)):
		return fmt.Errorf("%d bytes of a file in %d", e.size, len(e.inline))
	}
	return nil
}

// readRun fills the start of p, which is not empty, from byte off: to the end of what one
// extent, or one hole, has of it.
func (n *node) readRun(list []extent, p []byte, off int64) (int, error) {
	p = p[:min(len(p), maxRun)]
	if err := n.fs.r.Budget().Step(1); err != nil {
		return 0, err
	}
	i, _ := slices.BinarySearchFunc(list, off+1, func(e extent, end int64) int { return cmp.Compare(e.off+e.size, end) })
	if i == len(list) || list[i].off > off {
		if i < len(list) {
			p = p[:min(int64(len(p)), list[i].off-off)]
		}
		clear(p)
		return len(p), n.fs.r.Budget().Step(int64(len(p)) >> 12)
	}
	e := list[i]
	p = p[:min(int64(len(p)), e.off+e.size-off, maxRun)]
	from := e.skip + off - e.off
	switch {
	case e.how == 0 && e.inline != nil:
		return copy(p, e.inline[from:]), nil
	case e.inline == nil && e.at == 0:
		clear(p)
		return len(p), n.fs.r.Budget().Step(int64(len(p)) >> 12)
	case e.how == 0:
		return len(p), n.fs.read(p, e.at+uint64(from))
	}
	data, err := n.unpack(e)
	if err != nil {
		return 0, err
	}
	return copy(p, data[from:]), nil
}

// unpack returns a compressed extent, the whole of it.
func (n *node) unpack(e extent) ([]byte, error) {
	if e.inline == nil && n.plain.at == e.at && int64(len(n.plain.data)) == e.whole {
		return n.plain.data, nil
	}
	if err := n.fs.r.Budget().Unpack(max(e.whole, minUnpack)); err != nil {
		return nil, err
	}
	packed := e.inline
	if packed == nil {
		packed = make([]byte, e.packed)
		if err := n.fs.read(packed, e.at); err != nil {
			return nil, err
		}
	}
	data, err := decompress(e.how, packed, e.whole)
	if err != nil {
		return nil, fmt.Errorf("the extent at byte %d: %w", e.off, err)
	}
	n.plain = unpacked{e.at, data}
	return data, nil
}

// decompress unpacks so many bytes. What is behind the packed data is padding.
func decompress(how byte, packed []byte, size int64) ([]byte, error) {
	var r io.Reader
	switch how {
	case 1:
		z, err := zlib.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, err
		}
		r = z
	case 3:
		z, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<20), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	case 2:
		return nil, errors.New("compression with LZO is not understood")
	default:
		return nil, fmt.Errorf("compression %d is not understood", how)
	}
	data := make([]byte, size)
	got, err := io.ReadFull(r, data)
	if got > 0 && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, zstd.ErrMagicMismatch)) {
		err = nil // the last page of a file is not written in full
	}
	return data, err
}
