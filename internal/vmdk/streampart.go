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

// A streamPart is a window of the disk as compressed grains. It implements disk.Part.
type streamPart struct {
	stream *Stream     // stream that the part returns to
	r      disk.Range  // range of the window on the disk
	grains []partGrain // grains in ascending order
	packed []byte      // zlib data of all grains
}

// A partGrain is a grain of a streamPart.
type partGrain struct {
	grainHead
	from int // offset of the grain's data in packed
}

// newPart returns an empty part for the window that contains g. It reuses a released part if there is
// one.
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

// isInWindow reports whether g, which must not be before the window, begins in it.
func (p *streamPart) isInWindow(g grainHead) bool { return g.sector*disk.SectorSize < p.r.End() }

// addGrain adds g to the part and returns the memory for its data.
func (p *streamPart) addGrain(g grainHead) []byte {
	from := len(p.packed)
	p.grains = append(p.grains, partGrain{g, from})
	p.packed = slices.Grow(p.packed, int(g.size))[:from+int(g.size)]
	return p.packed[from:]
}

// Range returns the window.
func (p *streamPart) Range() disk.Range { return p.r }

// Fill decompresses the grains into b, with zeros between them.
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

// Release returns the part to its stream for reuse.
func (p *streamPart) Release() {
	p.grains, p.packed = p.grains[:0], p.packed[:0]
	select {
	case p.stream.free <- p:
	default:
	}
}

// An unpacker decompresses grains of one disk. It is safe for concurrent use.
type unpacker struct {
	header *sparseHeader // header with the grain size
	idle   sync.Pool     // pool of *inflater
}

// An inflater is the state of one goroutine, with the last grain that was decompressed as a whole.
type inflater struct {
	inflate.Decoder
	buf []byte // memory for one grain; nil until needed
	at  int64  // file offset of the grain in buf; 0 if buf has none
}

// newUnpacker returns an unpacker for the disk with header h.
func newUnpacker(h *sparseHeader) *unpacker {
	u := &unpacker{header: h}
	u.idle.New = func() any { return &inflater{} }
	return u
}

// errShortGrain means that the data of a grain ends early.
var errShortGrain = errors.New("it holds less than a grain")

// unpackGrain decompresses a grain into p, which has the length of a grain, or of its part on the disk
// if it is the last grain. Writers cut or pad the last grain before they compress it; both are valid.
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

// inflateLast decompresses the last grain of a disk whose size is no multiple of the grain size.
func (z *inflater) inflateLast(p, packed []byte, h *sparseHeader) error {
	n, err := z.inflateWhole(packed, h)
	if err == nil && n < len(p) {
		err = errShortGrain
	}
	copy(p, z.buf[:n])
	return err
}

// inflateWhole decompresses a grain into buf and returns its length. It discards the grain that was in
// buf.
func (z *inflater) inflateWhole(packed []byte, h *sparseHeader) (int, error) {
	z.at = 0
	if z.buf == nil {
		z.buf = make([]byte, h.grainBytes())
	}
	n, _, err := z.Zlib(z.buf, packed)
	return n, err
}

// unpackPiece fills p from offset skip of the grain at file offset at. size is the number of the
// grain's bytes on the disk. The grain is cached, because several reads of one grain often follow each
// other.
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
