package nfc

import (
	"errors"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	// mapChunk is the number of bytes that one bit of the allocation map describes: the smallest chunk
	// that VMware's library requests, and the one that was tested on a host.
	mapChunk = 64 << 10

	// mostChunks is the largest request of VMware's library: 32 GiB, a bitmap of 64 KiB.
	mostChunks = 1 << 19

	allocatedSize = 48 // bytes of the request, and of the reply without its bitmap
	countOffset   = 32 // offset of the number of chunks, in request and reply
	wordBytes     = 4  // the bitmap's length is a multiple of it, in bytes
)

// allocatedRequest returns the request for the map of count chunks, from offset start on. The start is
// at byte 24. Hosts ignore one at byte 8, which would be the obvious place, and answer zeros.
func allocatedRequest(handle uint64, start int64, count int) []byte {
	return encodeLongs(handle, 0, mapChunk, uint64(start), uint64(count), 0)
}

// bitmapSize checks a reply's payload and returns the length of the bitmap after it, in whole words. It
// fails if the reply is for another number of chunks.
func bitmapSize(p []byte, count int) (int, error) {
	if len(p) != allocatedSize {
		return 0, badAnswer("the reply with a map has %d bytes", len(p))
	}
	if n := le.Uint64(p[countOffset:]); n != uint64(count) {
		return 0, badAnswer("a map of %d chunks instead of %d", n, count)
	}
	return (count + 31) / 32 * wordBytes, nil
}

// inUse returns the ranges whose bits are set, in order and not adjacent. Bits after count are ignored.
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

// queryAllocated requests the allocated ranges of count chunks. It fails with fault.Unsupported if the
// host refuses.
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
