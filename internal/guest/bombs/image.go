package bombs

import (
	"context"
	"encoding/binary"
	"io"
	"slices"

	"github.com/decamp/decamp/internal/disk"
)

// An Image is a sparse disk in memory. It is a disk.Source.
type Image struct {
	size   int64
	pieces []piece // pieces by offset, without overlaps
}

type piece struct {
	off  int64
	data []byte
}

func newImage(size int64) *Image { return &Image{size: size} }

// put stores data from off on. What was stored at the same offset is replaced.
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

// Hints returns none.
func (m *Image) Hints() disk.Hints { return disk.Hints{} }

// Close does nothing.
func (m *Image) Close() error { return nil }

// ReadAt fills p from off.
func (m *Image) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(m.size, disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	clear(p)
	end := off + int64(len(p))
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

// Extents describes r as data.
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

// Store writes the disk to w, which is a new, empty file of the disk's size.
func (m *Image) Store(w io.WriterAt) error {
	for _, p := range m.pieces {
		if _, err := w.WriteAt(p.data, p.off); err != nil {
			return err
		}
	}
	return nil
}
