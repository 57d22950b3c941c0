package image

import (
	"bytes"
	"context"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/qcow2"
)

// piece is what a finished image may map, or leave out, on its own: a cluster of the qcow2
// images we write. Chunks are made of whole ones.
const pieceSize = 64 << 10

// A mapping returns the position of the disk's bytes in an image's file, a piece at a time. An
// unallocated piece has no position, and reads as zeros.
type mapping interface {
	At(off int64) (at int64, held bool)
}

// flat is the mapping of an image that is the disk byte for byte.
type identityMapping struct{}

func (identityMapping) At(off int64) (at int64, held bool) { return off, true }

// mappingOf returns that of an unfinished image.
func mappingOf(src disk.Source) mapping {
	if m, ok := src.(mapping); ok {
		return m
	}
	return identityMapping{}
}

// checkTables reads the tables of a finished image back, if it has any, and returns them. A difference
// from the written tables is fault.Corrupt.
func checkTables(ctx context.Context, src disk.Source, size int64) (mapping, error) {
	s, ok := src.(interface {
		CheckTables(ctx context.Context, size int64) (*qcow2.Tables, error)
	})
	if !ok {
		return identityMapping{}, nil
	}
	t, err := s.CheckTables(ctx, size)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// setMapping receives the positions of the pieces that will be read back. Chunks that were read back at other
// positions are not verified any more.
func (p *Proven) setMapping(m mapping) {
	base, _ := m.At(0)
	if base != p.base {
		p.record = newRecord(p.info)
		p.base = base
	}
}

// noteZeros notes which pieces of the chunk at r, which is in b, are zeros.
func (p *Proven) noteZeros(r disk.Range, b []byte) {
	for off := int64(0); off < r.Len; off += pieceSize {
		part := disk.Range{Off: r.Off + off, Len: min(pieceSize, r.Len-off)}
		if bytes.Equal(b[off:off+part.Len], zeroPiece[:part.Len]) {
			p.zeros.Set(part)
		} else {
			p.zeros.Clear(part)
		}
	}
}

var zeroPiece [pieceSize]byte

// copyVerified proves a chunk that from has proven, of an image with the same base.
func (p *Proven) copyVerified(chunk int64, from *Proven) {
	r := p.info.Chunk(chunk)
	for off := r.Off; off < r.End(); off += pieceSize {
		if from.zeros.Has(off) {
			p.zeros.Set(disk.Range{Off: off, Len: min(pieceSize, r.End()-off)})
		}
	}
	p.setVerified(chunk)
}

// keepMapped keeps the verified chunks whose pieces all have the positions at which they were read back, or
// were zeros then and are unallocated now.
func (p *Proven) keepMapped(m mapping) {
	for c := range p.info.Chunks() {
		if p.Has(c) && !p.isMapped(m, p.info.Chunk(c)) {
			p.clearVerified(c)
		}
	}
}

func (p *Proven) isMapped(m mapping, r disk.Range) bool {
	for off := r.Off; off < r.End(); off += pieceSize {
		at, held := m.At(off)
		if held && at != p.base+off || !held && !p.zeros.Has(off) {
			return false
		}
	}
	return true
}
