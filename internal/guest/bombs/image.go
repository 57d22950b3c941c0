package bombs

import (
	"context"
	"encoding/binary"
	"io"
	"slices"

	"github.com/decamp/decamp/internal/disk"
)

// An Image is a sparse disk in memory. It implements disk.Source. It is safe for concurrent use
// once it is complete.
type Image struct {
	size   int64   // bytes of the disk
	pieces []piece // stored pieces, sorted by offset, without overlaps; the rest is zeros
}

// A piece is a stored range of an Image.
type piece struct {
	off  int64  // offset on the disk
	data []byte // content, which the Image owns
}

// newImage returns an empty disk of size bytes.
func newImage(size int64) *Image { return &Image{size: size} }

// put stores data at off and keeps a reference to it. It replaces a piece at the same offset; other
// overlaps are not permitted.
func (m *Image) put(off int64, data []byte) {
	i, _ := slices.BinarySearchFunc(m.pieces, off, func(p piece, off int64) int { return int(max(-1, min(1, p.off-off))) })
	if i < len(m.pieces) && m.pieces[i].off == off {
		m.pieces[i].data = data
		return
	}
	m.pieces = slices.Insert(m.pieces, i, piece{off, data})
}

// Size returns the size of the disk in bytes.
func (m *Image) Size() int64 { return m.size }

// Hints returns no preferences.
func (m *Image) Hints() disk.Hints { return disk.Hints{} }

// Close does nothing; an Image has no resources besides memory.
func (m *Image) Close() error { return nil }

// ReadAt fills p from off. The range must be within the disk.
func (m *Image) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(m.size, disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	clear(p)
	end := off + int64(len(p))
	// i is the first piece that ends after off.
	i, _ := slices.BinarySearchFunc(m.pieces, off, func(x piece, off int64) int {
		if x.off+int64(len(x.data)) <= off {
			return -1
		}
		return 1
	})
	for ; i < len(m.pieces) && m.pieces[i].off < end; i++ {
		x := m.pieces[i]
		from := max(off, x.off)
		copy(p[from-off:], x.data[from-x.off:])
	}
	return ctx.Err()
}

// Extents reports the whole range as data, so that readers do not skip holes.
func (m *Image) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r}}, nil
}

// Shorthands for little-endian and big-endian numbers within p.
func le16(p []byte, at int, v uint16) { binary.LittleEndian.PutUint16(p[at:], v) }
func le32(p []byte, at int, v uint32) { binary.LittleEndian.PutUint32(p[at:], v) }
func le64(p []byte, at int, v uint64) { binary.LittleEndian.PutUint64(p[at:], v) }
func be16(p []byte, at int, v uint16) { binary.BigEndian.PutUint16(p[at:], v) }
func be32(p []byte, at int, v uint32) { binary.BigEndian.PutUint32(p[at:], v) }
func be64(p []byte, at int, v uint64) { binary.BigEndian.PutUint64(p[at:], v) }

// Store writes the disk to w, which must be an empty file of the disk's size. Holes are not written.
func (m *Image) Store(w io.WriterAt) error {
	for _, p := range m.pieces {
		if _, err := w.WriteAt(p.data, p.off); err != nil {
			return err
		}
	}
	return nil
}
