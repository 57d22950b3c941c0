package nfc

import (
	"errors"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	// mapChunk is how many bytes one bit of the allocation map stands for: the smallest that
	// VMware's library asks for, and the one that was tried on a host.
	mapChunk = 64 << 10

	// mostChunks is how many VMware's library asks for at a time: 32 GiB, a bitmap of 64 KiB.
	mostChunks = 1 << 19

	allocatedSize = 48
	countOffset   = 32 // of the number of chunks, in request and reply
	wordBytes     = 4  // the bitmap's length is a multiple of it
)

// allocatedRequest asks for the map of count chunks from start on. The start stands at 24:
// at 8, where one would look for it, hosts ignore it and answer zeros.
func allocatedRequest(handle uint64, start int64, count int) []byte {
	return encodeLongs(handle, 0, mapChunk, uint64(start), uint64(count), 0)
}

// bitmapSize reads a reply's head and returns the length of its bitmap, which is rounded
// up to whole words.
func bitmapSize(p []byte, count int) (int, error) {
	if len(p) != allocatedSize {
		return 0, badAnswer("a map is told in %d bytes", len(p))
	}
	if n := le.Uint64(p[countOffset:]); n != uint64(count) {
		return 0, badAnswer("a map of %d chunks, asked for were %d", n, count)
	}
	return (count + 31) / 32 * wordBytes, nil
}

// inUse returns the ranges whose bits are set, in order, not touching. Bits past count
// mean nothing.
func inUse(bitmap []byte, start int64, count int) []disk.Range {
	var out []disk.Range
	for i := range count {
		if bitmap[i/8]>>(i%8)&1 == 0 {
			continue
		}
		off := start + int64(i)*mapChunk
		if n := len(out); n > 0 && out[n-1].End() == off {
			out[n-1].Len += mapChunk
			continue
		}
		out = append(out, disk.Range{Off: off, Len: mapChunk})
	}
	return out
}

// queryAllocated asks for the areas in use of whole chunks.
func (d *Disk) queryAllocated(start int64, count int) ([]disk.Range, error) {
	o := &op{kind: frameAllocated, trailer: func(p []byte) (int, error) { return bitmapSize(p, count) }}
	_, err := d.session.call(o, allocatedRequest(d.handle, start, count), nil)
	if r := (*Refusal)(nil); errors.As(err, &r) {
		return nil, fault.New(fault.Unsupported, "the host gives no map: %w", r).WithHint("the disk is read in full instead")
	}
	if err != nil {
		return nil, err
	}
	return inUse(o.tail, start, count), nil
}
