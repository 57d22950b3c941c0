package image

import (
	"bytes"
	"context"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/qcow2"
)

// pieceSize is the smallest part of a disk that a finished image maps separately, in bytes: a cluster
// of the qcow2 images that decamp writes. A chunk is a whole number of pieces.
const pieceSize = 64 << 10

// A mapping returns the position in an image's file of each piece of the disk. A piece without a
// position reads as zeros.
type mapping interface {
	// At returns the position of the byte at off, and false if its piece has none.
	At(off int64) (at int64, held bool)
}

// An identityMapping is the mapping of an image that equals the disk byte for byte.
type identityMapping struct{}

// At returns off itself.
func (identityMapping) At(off int64) (at int64, held bool) { return off, true }

// mappingOf returns the mapping of an unfinished image.
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

// setMapping sets the positions at which chunks will be read back. If they differ from those of the
// record, no chunk counts as verified any more.
func (p *VerifiedRecord) setMapping(m mapping) {
	base, _ := m.At(0)
	if base != p.base {
		p.record = newRecord(p.info)
		p.base = base
	}
}

// noteZeros records which pieces of the chunk at r contain only zeros. b is the content of the chunk.
func (p *VerifiedRecord) noteZeros(r disk.Range, b []byte) {
	for off := int64(0); off < r.Len; off += pieceSize {
		part := disk.Range{Off: r.Off + off, Len: min(pieceSize, r.Len-off)}
		if bytes.Equal(b[off:off+part.Len], zeroPiece[:part.Len]) {
			p.zeros.Set(part)
		} else {
			p.zeros.Clear(part)
		}
	}
}

// zeroPiece is a piece of zeros. It is never written.
var zeroPiece [pieceSize]byte

// copyVerified marks a chunk as verified that is verified in from. Both must have the same base.
func (p *VerifiedRecord) copyVerified(chunk int64, from *VerifiedRecord) {
	r := p.info.Chunk(chunk)
	for off := r.Off; off < r.End(); off += pieceSize {
		if from.zeros.Has(off) {
			p.zeros.Set(disk.Range{Off: off, Len: min(pieceSize, r.End()-off)})
		}
	}
	p.setVerified(chunk)
}

// keepMapped keeps the verified chunks whose pieces all have the positions at which they were read
// back. A piece that was zeros then may also be unallocated now.
func (p *VerifiedRecord) keepMapped(m mapping) {
	for c := range p.info.Chunks() {
		if p.Has(c) && !p.isMapped(m, p.info.Chunk(c)) {
			p.clearVerified(c)
		}
	}
}

// isMapped reports whether all pieces of r are still at the positions at which they were read back.
func (p *VerifiedRecord) isMapped(m mapping, r disk.Range) bool {
	for off := r.Off; off < r.End(); off += pieceSize {
		at, held := m.At(off)
		if held && at != p.base+off || !held && !p.zeros.Has(off) {
			return false
		}
	}
	return true
}
