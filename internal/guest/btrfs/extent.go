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

	"github.com/decamp/decamp/internal/guest/budget"
)

const (
	extentInline   = 0 // data is in the item
	extentPrealloc = 2 // space is allocated but not written

	maxExtents = 1 << 18   // extents of one file
	maxPacked  = 256 << 10 // bytes of a compressed extent, before and after decompression; the kernel creates 128 KiB
	maxRun     = 1 << 20   // bytes of one read
	minUnpack  = 64 << 10  // minimum charge for decompressing an extent in bytes, because each needs a decompressor
)

// An extent maps a range of a file. Gaps between extents are holes.
type extent struct {
	off, size   int64  // range of the file in bytes
	compression byte   // 0 none, 1 zlib, 2 LZO, 3 zstd
	inline      []byte // data in the item, possibly compressed; nil for other extents
	at          uint64 // logical address of the data; 0 reads as zeros
	packed      int64  // bytes at the address
	whole       int64  // bytes of the whole extent after decompression
	skip        int64  // bytes of the whole extent before the file's range
}

// An unpackedExtent is the content of a compressed extent.
type unpackedExtent struct {
	at   uint64 // logical address of the compressed data
	data []byte // decompressed content
}

// readExtents returns the extents of a file in order and caches them. It fails if they overlap or if
// there are more than maxExtents. Their memory is charged until the examination ends.
func (n *node) readExtents() ([]extent, error) {
	if n.listed {
		return n.list, nil
	}
	var list []extent
	inline := int64(0) // bytes of content in the extents
	var failed error
	err := n.fs.walkTree(n.volume, key{object: n.number, kind: keyExtent}, func(k key, data []byte) bool {
		if k.object != n.number || k.kind != keyExtent {
			return false
		}
		var e extent
		if e, failed = parseExtent(k, data); failed == nil {
			list, failed = n.appendExtent(list, e)
		}
		if failed == nil {
			inline += int64(len(e.inline))
		}
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		budget.ReleaseSlice(n.fs.r.Budget(), list)
		n.fs.r.Budget().Release(inline)
		return nil, err
	}
	n.list, n.listed = list, true
	return list, nil
}

// appendExtent appends a copy of e to list. It charges the memory of list and of the content in e.
func (n *node) appendExtent(list []extent, e extent) ([]extent, error) {
	if l := len(list); l == maxExtents || l > 0 && e.off < list[l-1].off+list[l-1].size {
		return list, errors.New("extents that overlap, or too many")
	}
	list, err := budget.Grow(n.fs.r.Budget(), list, 1)
	if err != nil {
		return list, err
	}
	if err := n.fs.r.Budget().Hold(int64(len(e.inline))); err != nil {
		return list, err
	}
	e.inline = bytes.Clone(e.inline) // the tree block stays in memory only for a while
	return append(list, e), nil
}

// parseExtent parses an extent item; data in the item is not copied. It fails if the extent is encrypted or its numbers are invalid.
func parseExtent(k key, data []byte) (extent, error) {
	if len(data) < 21 || data[20] != extentInline && len(data) < 53 {
		return extent{}, fmt.Errorf("an extent of %d bytes", len(data))
	}
	// Offsets in an item: 8 size after decompression, 16 compression, 17 encryption, 20 type, 21 data, or address,
	// size on disk, offset and size of the part.
	e := extent{off: int64(k.offset), compression: data[16], whole: int64(le64(data, 8))}
	switch {
	case data[17] != 0 || le16(data, 18) != 0:
		return e, errors.New("the file is encrypted")
	case data[20] == extentInline:
		e.inline, e.size = data[21:], e.whole
		return e, e.checkRange()
	}
	e.at, e.packed, e.skip, e.size = le64(data, 21), int64(le64(data, 29)), int64(le64(data, 37)), int64(le64(data, 45))
	// Preallocated space has an address but reads as zeros.
	if data[20] == extentPrealloc {
		e.at = 0
	}
	return e, e.checkRange()
}

// checkRange fails if a number is out of range, or if a compressed extent is too large.
func (e extent) checkRange() error {
	const max = 1 << 60
	for _, v := range []int64{e.off, e.size, e.packed, e.whole, e.skip} {
		if v < 0 || v > max {
			return fmt.Errorf("an extent of %d bytes at byte %d", e.size, e.off)
		}
	}
	switch {
	case e.at > max:
		return fmt.Errorf("an extent at address %d", e.at)
	case e.size == 0:
		return errors.New("an extent of no bytes")
	case e.compression != 0 && (e.whole > maxPacked || e.packed > maxPacked || e.skip+e.size > e.whole):
		return fmt.Errorf("a compressed extent of %d bytes, %d unpacked", e.packed, e.whole)
	case e.compression == 0 && e.inline != nil && e.size > int64(len(e.inline)):
		return fmt.Errorf("%d bytes of a file in %d", e.size, len(e.inline))
	}
	return nil
}

// readRun fills the beginning of p, which is not empty, from byte off, up to the end of an extent or
// hole. It returns the bytes read.
func (n *node) readRun(list []extent, p []byte, off int64) (int, error) {
	p = p[:min(len(p), maxRun)]
	if err := n.fs.r.Budget().Step(1); err != nil {
		return 0, err
	}
	// i is the first extent that ends after off.
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
	// An extent may be shared, and the file may use only a part of it.
	from := e.skip + off - e.off
	switch {
	case e.compression == 0 && e.inline != nil:
		return copy(p, e.inline[from:]), nil
	case e.inline == nil && e.at == 0:
		clear(p)
		return len(p), n.fs.r.Budget().Step(int64(len(p)) >> 12)
	case e.compression == 0:
		return len(p), n.fs.readLogical(p, e.at+uint64(from))
	}
	data, err := n.unpackExtent(e)
	if err != nil {
		return 0, err
	}
	return copy(p, data[from:]), nil
}

// unpackExtent returns the whole content of a compressed extent. The last one is cached, because a file
// is read in small parts.
func (n *node) unpackExtent(e extent) ([]byte, error) {
	if e.inline == nil && n.plain.at == e.at && int64(len(n.plain.data)) == e.whole {
		return n.plain.data, nil
	}
	if err := n.fs.r.Budget().Unpack(max(e.whole, minUnpack)); err != nil {
		return nil, err
	}
	packed := e.inline
	if packed == nil {
		packed = make([]byte, e.packed)
		if err := n.fs.readLogical(packed, e.at); err != nil {
			return nil, err
		}
	}
	data, err := decompressExtent(e.compression, packed, e.whole)
	if err != nil {
		return nil, fmt.Errorf("the extent at byte %d: %w", e.off, err)
	}
	n.plain = unpackedExtent{e.at, data}
	return data, nil
}

// decompressExtent decompresses size bytes. Padding after the compressed data is ignored; a shorter
// result is filled with zeros.
func decompressExtent(how byte, packed []byte, size int64) ([]byte, error) {
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
		return nil, errors.New("compression with LZO is not supported")
	default:
		return nil, fmt.Errorf("compression %d is not supported", how)
	}
	data := make([]byte, size)
	got, err := io.ReadFull(r, data)
	if got > 0 && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, zstd.ErrMagicMismatch)) {
		err = nil // the last page of a file is not written in full
	}
	return data, err
}
