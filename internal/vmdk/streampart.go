package vmdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/inflate"
)

// A streamPart is a window of the disk as packed grains.
type streamPart struct {
	stream *Stream
	r      disk.Range
	grains []partGrain // grains in order
	packed []byte
}

type partGrain struct {
	grainHead
	from int // offset in packed
}

// newPart starts the part that g is in.
func (s *Stream) newPart(g grainHead, window int64) *streamPart {
	off := g.sector * disk.SectorSize / window * window
	r := disk.Range{Off: off, Len: min(window, s.Size()-off)}
	select {
	case p := <-s.free:
		p.r = r
		return p
	default:
		return &streamPart{stream: s, r: r, packed: make([]byte, 0, r.Len+r.Len/64)}
	}
}

func (p *streamPart) isInWindow(g grainHead) bool { return g.sector*disk.SectorSize < p.r.End() }

// addGrain books g and returns where its bytes go.
func (p *streamPart) addGrain(g grainHead) []byte {
	from := len(p.packed)
	p.grains = append(p.grains, partGrain{g, from})
	p.packed = slices.Grow(p.packed, int(g.size))[:from+int(g.size)]
	return p.packed[from:]
}

// Range returns the window.
func (p *streamPart) Range() disk.Range { return p.r }

// Fill inflates the grains into b, and zeros between them.
func (p *streamPart) Fill(ctx context.Context, b []byte) error {
	pos := p.r.Off
	for _, g := range p.grains {
		if err := ctx.Err(); err != nil {
			return err
		}
		r := disk.Range{Off: g.sector * disk.SectorSize, Len: p.stream.Grain()}.Intersect(p.r)
		clear(b[pos-p.r.Off : r.Off-p.r.Off])
		packed := p.packed[g.from : g.from+int(g.size)]
		if err := p.stream.unpacker.unpackGrain(b[r.Off-p.r.Off:r.End()-p.r.Off], packed); err != nil {
			return corruptSparse("the grain at byte %d of the stream, sector %d of the disk: %w", g.at, g.sector, err)
		}
		pos = r.End()
	}
	clear(b[pos-p.r.Off:])
	return nil
}

// Release gives the part back to its stream.
func (p *streamPart) Release() {
	p.grains, p.packed = p.grains[:0], p.packed[:0]
	select {
	case p.stream.free <- p:
	default:
	}
}

// An unpacker inflates grains of one disk. It may be used concurrently.
type unpacker struct {
	header *sparseHeader
	idle   sync.Pool // pool of *inflater
}

// An inflater is what one goroutine needs, and the last grain it inflated whole.
type inflater struct {
	inflate.Decoder
	buf []byte
	at  int64 // offset of the grain in buf in its file; 0 without one
}

func newUnpacker(h *sparseHeader) *unpacker {
	u := &unpacker{header: h}
	u.idle.New = func() any { return &inflater{} }
	return u
}

var errShortGrain = errors.New("it holds less than a grain")

// unpackGrain inflates a grain into p, which has the length of the grain, or of its part on the disk if it is
// the last. The last grain may have been cut at the end of the disk before it was packed, or padded.
func (u *unpacker) unpackGrain(p, packed []byte) error {
	z := u.idle.Get().(*inflater)
	defer u.idle.Put(z)
	if int64(len(p)) == u.header.grainBytes() {
		n, _, err := z.Zlib(p, packed)
		if err == nil && n < len(p) {
			err = errShortGrain
		}
		return err
	}
	return z.inflateLast(p, packed, u.header)
}

// inflateLast inflates the last grain of an odd disk into p.
func (z *inflater) inflateLast(p, packed []byte, h *sparseHeader) error {
	n, err := z.inflateWhole(packed, h)
	if err == nil && n < len(p) {
		err = errShortGrain
	}
	copy(p, z.buf[:n])
	return err
}

// inflateWhole inflates a grain into buf.
func (z *inflater) inflateWhole(packed []byte, h *sparseHeader) (int, error) {
	z.at = 0
	if z.buf == nil {
		z.buf = make([]byte, h.grainBytes())
	}
	n, _, err := z.Zlib(z.buf, packed)
	return n, err
}

// unpackPiece fills p from an offset of skip bytes in the grain at offset at of its file, of which size bytes
// are on the disk. Reads of one grain often follow each other: it is cached.
func (u *unpacker) unpackPiece(p, packed []byte, at, skip, size int64) error {
	z := u.idle.Get().(*inflater)
	defer u.idle.Put(z)
	if z.at != at {
		n, err := z.inflateWhole(packed, u.header)
		if err != nil {
			return err
		}
		if int64(n) < size {
			return fmt.Errorf("%w: %d bytes", errShortGrain, n)
		}
		z.at = at
	}
	copy(p, z.buf[skip:])
	return nil
}
