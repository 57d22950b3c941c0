package nfc

import (
	"errors"
	"io"
	"slices"

	"github.com/decamp/decamp/internal/fastlz"
	"github.com/decamp/decamp/internal/inflate"
)

const (
	// packing is the number of bytes by which a compressed fragment may exceed its data: it has a header,
	// and hosts do not compress data that does not shrink.
	packing = 64 << 10

	// mostPieces bounds the separate ranges of one request that are remembered. A host sends fragments of
	// its buffer size, 32 for a large request.
	mostPieces = 4096
)

// readOp is a read request under way: its buffer, and the parts that arrived.
type readOp struct {
	dst []byte     // buffer of the caller
	off int64      // offset of dst on the disk
	got byteRanges // ranges of dst that arrived
}

// isComplete reports whether every byte arrived.
func (r *readOp) isComplete() bool { return r.got.sum == len(r.dst) }

// fragmentHeader describes one part of a read.
type fragmentHeader struct {
	compression Compression // encoding of the bytes that follow
	start, size int         // position and length in the request, in bytes
	wire        int         // number of bytes that follow
}

// parseFragment parses a reply to a read. It fails if the reply does not match the request: operation,
// offset, length, or a fragment outside of it.
func parseFragment(p []byte, r *readOp) (f fragmentHeader, err error) {
	if len(p) != ioSize {
		return f, badAnswer("a read is answered in %d bytes", len(p))
	}
	if status := le.Uint64(p); status != 0 {
		return f, refusedRead(&Refusal{Code: status})
	}
	compression, off, total := le.Uint32(p[12:]), le.Uint64(p[16:]), le.Uint32(p[24:])
	start, size, wire := le.Uint32(p[28:]), le.Uint32(p[32:]), le.Uint32(p[36:])
	whole := uint64(len(r.dst))
	switch {
	case le.Uint32(p[8:]) != ioRead:
		return f, badAnswer("a read is answered as operation %d", le.Uint32(p[8:]))
	case off != uint64(r.off) || uint64(total) != whole:
		return f, badAnswer("%d bytes at %d, requested %d at %d", total, off, whole, r.off)
	case size == 0 || uint64(start)+uint64(size) > whole:
		return f, badAnswer("a fragment of %d bytes at %d of a request of %d", size, start, whole)
	case compression > uint32(SkipZ):
		return f, badAnswer("a fragment compressed in way %d", compression)
	case Compression(compression) == Stored && wire != size:
		return f, badAnswer("a fragment of %d bytes takes %d on the wire", size, wire)
	case uint64(wire) > uint64(size)+packing:
		return f, badAnswer("a compressed fragment of %d bytes takes %d on the wire", size, wire)
	}
	return fragmentHeader{Compression(compression), int(start), int(size), int(wire)}, nil
}

// fragmentReader reads the fragments of a session. Its buffers are reused.
type fragmentReader struct {
	packed   []byte          // last compressed fragment
	inflater inflate.Decoder // decoder of zlib data
}

// readFragment reads the data after a reply's payload into the buffer of r. It fails for data that
// arrives twice.
func (f *fragmentReader) readFragment(from io.Reader, r *readOp, payload []byte) error {
	h, err := parseFragment(payload, r)
	if err != nil {
		return err
	}
	if err := r.got.add(h.start, h.start+h.size); err != nil {
		return err
	}
	dst := r.dst[h.start : h.start+h.size]
	if h.compression == Stored {
		_, err := io.ReadFull(from, dst)
		return noEOF(err)
	}
	f.packed = slices.Grow(f.packed[:0], h.wire)[:h.wire]
	if _, err := io.ReadFull(from, f.packed); err != nil {
		return noEOF(err)
	}
	return f.decodePacked(dst, h.compression)
}

// decodePacked decodes the packed fragment into dst, which it must fill.
func (f *fragmentReader) decodePacked(dst []byte, c Compression) (err error) {
	switch c {
	case Zlib:
		err = f.inflateZlib(dst)
	case FastLZ:
		err = fastlz.Decode(dst, f.packed)
	case SkipZ:
		err = decodeSkipZ(dst, f.packed)
	}
	if err != nil {
		return badAnswer("a fragment of %d bytes in %d of %v: %w", len(dst), len(f.packed), c, err)
	}
	return nil
}

// errLength reports data of another length than announced.
var errLength = errors.New("it does not hold as many bytes")

// inflateZlib decodes one zlib stream, which must use the whole fragment.
func (f *fragmentReader) inflateZlib(dst []byte) error {
	n, used, err := f.inflater.Zlib(dst, f.packed)
	if err == nil && (n != len(dst) || used != len(f.packed)) {
		err = errLength
	}
	return err
}

// byteRanges are the parts of a request that arrived: in order and not adjacent.
type byteRanges struct {
	list []byteRange // sorted ranges
	sum  int         // bytes in all of them
}

// byteRange is a part of a request, from from up to and excluding to.
type byteRange struct{ from, to int }

// add records [from, to). It fails if a part of that arrived before.
func (p *byteRanges) add(from, to int) error {
	i, _ := slices.BinarySearchFunc(p.list, from, func(e byteRange, at int) int { return e.from - at })
	if i > 0 && p.list[i-1].to > from || i < len(p.list) && p.list[i].from < to {
		return badAnswer("a fragment of %d bytes at %d of a request came twice", to-from, from)
	}
	p.sum += to - from
	before, after := i > 0 && p.list[i-1].to == from, i < len(p.list) && p.list[i].from == to
	switch {
	case before && after:
		p.list[i-1].to = p.list[i].to
		p.list = slices.Delete(p.list, i, i+1)
	case before:
		p.list[i-1].to = to
	case after:
		p.list[i].from = from
	case len(p.list) == mostPieces:
		return badAnswer("a request is answered in more than %d pieces", mostPieces)
	default:
		p.list = slices.Insert(p.list, i, byteRange{from, to})
	}
	return nil
}
