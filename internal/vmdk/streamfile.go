package vmdk

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/disk"
)

// A packedExtent is a streamOptimized extent in a file. Its tables locate its grains.
type packedExtent struct {
	*sparse
	unpacker *unpacker // decompresses the grains
}

// newPacked returns the layer of the extent in f, and sets f.unpack. A truncated file is fault.Corrupt.
func newPacked(ctx context.Context, f *file, h *sparseHeader, cache *tableCache, warn warner) (layer, error) {
	if err := h.checkStream(); err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	if h.directory == gdAtEnd {
		var err error
		if h, err = f.findFooter(ctx, h); err != nil {
			return nil, err
		}
	}
	s := &sparse{sparseHeader: h, file: f, warn: warn, first: region{at: int64(h.directory) * disk.SectorSize, width: 4}}
	if h.flags&flagRedundant != 0 && h.redundant > 0 {
		s.redundant = &region{at: h.redundant * disk.SectorSize, width: 4}
	}
	if end := s.first.at + h.tableCount()*4; end > f.size() {
		return nil, f.truncatedStream(ctx, h, "before its grain directory")
	}
	p := &packedExtent{sparse: s, unpacker: newUnpacker(h)}
	f.unpack = p.unpackRun
	return &packedMap{grainMap{
		file: f, cache: cache, bytes: h.diskBytes(), grain: h.grainBytes(), entries: h.tableEntries,
		tables: h.tableCount(), readPiece: s.directoryPiece, readTable: s.readTable,
	}}, nil
}

// footerSearch is the number of zero bytes that may follow the footer: the end-of-stream marker, and
// padding of a copy in large blocks.
const footerSearch = 1 << 20

// findFooter returns the footer, which is the last sector that is not zeros. The error for a truncated
// file contains the number of complete grains.
func (f *file) findFooter(ctx context.Context, h *sparseHeader) (*sparseHeader, error) {
	tail := make([]byte, min(f.size(), footerSearch))
	start := f.size() - int64(len(tail))
	if err := f.readAt(ctx, tail, start); err != nil {
		return nil, err
	}
	last := len(tail) - 1
	for last >= 0 && tail[last] == 0 {
		last--
	}
	at := (start + int64(last)) / disk.SectorSize * disk.SectorSize
	if at < 2*disk.SectorSize || at-disk.SectorSize < start || at+disk.SectorSize > f.size() {
		return nil, f.truncatedStream(ctx, h, "before its footer")
	}
	mark, b := tail[at-disk.SectorSize-start:], tail[at-start:]
	if string(b[:4]) != sparseMagic || binary.LittleEndian.Uint32(mark[12:]) != markFooter {
		return nil, f.truncatedStream(ctx, h, "before its footer")
	}
	footer, err := parseSparseHeader(b)
	if err != nil {
		return nil, fmt.Errorf("%s: footer: %w", f.name, err)
	}
	if err := h.checkFooter(footer); err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	return footer, nil
}

// truncatedStream returns the error for a file that ends early. It reads all markers to count the
// complete grains.
func (f *file) truncatedStream(ctx context.Context, h *sparseHeader, where string) error {
	grains, err := f.wholeGrains(ctx, h)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", f.name, truncatedAt(f.size(), where, grains))
}

// wholeGrains counts the complete grains from the first one to the first invalid marker.
func (f *file) wholeGrains(ctx context.Context, h *sparseHeader) (n int64, err error) {
	var head [16]byte
	at := max(1, h.overhead, h.descriptor+h.descriptorSize) * disk.SectorSize
	for at >= 0 && at+int64(len(head)) <= f.size() {
		if err := f.readAt(ctx, head[:], at); err != nil {
			return n, err
		}
		g := grainHead{sector: sectorCount(head[:]), size: binary.LittleEndian.Uint32(head[8:]), at: at}
		kind := binary.LittleEndian.Uint32(head[12:])
		switch {
		case g.size > 0 && h.checkGrain(g) == nil && at+grainHeadSize+int64(g.size) <= f.size():
			n++
			at += sectorsOf(grainHeadSize+int64(g.size)) * disk.SectorSize
		case g.size == 0 && kind != markEnd && kind <= markProgress && g.sector >= 0 && g.sector < f.size():
			at += (1 + g.sector) * disk.SectorSize
		default:
			return n, nil
		}
	}
	return n, nil
}

// unpackRun fills p with a part of the grain in b. It implements file.unpack.
func (s *packedExtent) unpackRun(b []byte, r Run, p []byte) error {
	if int64(len(b)) < grainHeadSize {
		return corruptFile(s.file.name, "the grain at %d is cut by the end of the file", r.At)
	}
	g := grainHead{sector: sectorCount(b), size: binary.LittleEndian.Uint32(b[8:]), at: r.At}
	if err := s.checkGrain(g); err != nil {
		return err
	}
	if want := (r.Off - r.Skip - s.file.start) / disk.SectorSize; g.sector != want {
		return corruptFile(s.file.name, "the grain at %d has sector %d, its table has %d", r.At, g.sector, want)
	}
	b = b[grainHeadSize:]
	if int64(g.size) > int64(len(b)) {
		return corruptFile(s.file.name, "the grain at %d has %d packed bytes, more than the %d up to what follows", r.At, g.size, len(b))
	}
	if err := s.inflateGrain(g, b[:g.size], r.Skip, p); err != nil {
		return corruptFile(s.file.name, "the grain of sector %d at %d: %w", g.sector, r.At, err)
	}
	return nil
}

// inflateGrain fills p from offset skip of the decompressed grain g. b is the zlib data of the grain.
func (s *packedExtent) inflateGrain(g grainHead, b []byte, skip int64, p []byte) error {
	size := min(s.grainBytes(), s.diskBytes()-g.sector*disk.SectorSize)
	if skip == 0 && int64(len(p)) == size {
		return s.unpacker.unpackGrain(p, b)
	}
	return s.unpacker.unpackPiece(p, b, g.at, skip, size)
}

// A packedMap is a grainMap whose grains are compressed.
type packedMap struct{ grainMap }

// newCursor returns a cursor whose runs are single grains.
func (m *packedMap) newCursor() cursor {
	return &packedCursor{grainCursor: m.grainMap.newCursor().(*grainCursor)}
}

// A packedCursor cuts the runs of a grainCursor into single grains.
type packedCursor struct {
	*grainCursor
	number int64   // number of the table in places; only valid if places is not nil
	places []int64 // file offsets of the table's grains, ascending
}

// runAt implements cursor.
func (c *packedCursor) runAt(ctx context.Context, r disk.Range) (Run, error) {
	// Request from the start of the grain: a compressed grain has no offsets within.
	begin := r.Off / c.grain * c.grain
	run, err := c.grainCursor.runAt(ctx, disk.Range{Off: begin, Len: r.End() - begin})
	if err != nil {
		return Run{}, err
	}
	if run.Kind == Data {
		run.Range = run.Intersect(disk.Range{Off: begin, Len: c.grain})
		run.Packed = c.packedLimit(run.At)
	}
	return run.clip(r), nil
}

// packedLimit returns an upper limit of the length of the grain at file offset at, without reading its
// header: the distance to the next grain of the same table, or the largest valid length.
func (c *packedCursor) packedLimit(at int64) int64 {
	if c.places == nil || c.number != c.grainCursor.number {
		c.number, c.places = c.grainCursor.number, c.places[:0]
		for _, at := range c.table {
			if at > 0 {
				c.places = append(c.places, at)
			}
		}
		slices.Sort(c.places)
	}
	most := sectorsOf(grainHeadSize+2*c.grain) * disk.SectorSize
	i, _ := slices.BinarySearch(c.places, at+1)
	if i < len(c.places) {
		return min(most, c.places[i]-at)
	}
	return most
}
