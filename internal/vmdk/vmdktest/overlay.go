package vmdktest

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
)

// An Overlay is the expected content of a disk. It is a disk.Source. It stores for each sector which
// layer wrote it last, and computes the bytes from that.
type Overlay struct {
	seed    uint64  // seed of the chain
	writers []uint8 // last writer of each sector: 0 reads as zeros, n is layer n-1
}

// Size returns the size in bytes.
func (o *Overlay) Size() int64 { return int64(len(o.writers)) * sector }

// setWriter sets the writer of sectors [from, to) that lie on the disk.
func (o *Overlay) setWriter(from, to int64, writer uint8) {
	for n := from; n < min(to, int64(len(o.writers))); n++ {
		o.writers[n] = writer
	}
}

// resize sets the size to that of a later layer. Added sectors read as zeros.
func (o *Overlay) resize(sectors int64) {
	grown := make([]uint8, sectors)
	copy(grown, o.writers)
	o.writers = grown
}

// ReadAt fills p from off. Offset and length need not be multiples of a sector.
func (o *Overlay) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > o.Size()-int64(len(p)) {
		return fmt.Errorf("%d bytes at %d are outside the disk of %d", len(p), off, o.Size())
	}
	var one [sector]byte
	for len(p) > 0 {
		n, skip := off/sector, off%sector
		if w := o.writers[n]; w == 0 {
			clear(one[:])
		} else {
			fillSector(one[:], o.seed, w, n)
		}
		c := copy(p, one[skip:])
		p, off = p[c:], off+int64(c)
	}
	return ctx.Err()
}

// Extents describes r. Sectors without a writer are zeros, all others data.
func (o *Overlay) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if r.Off < 0 || r.Len < 0 || r.Off > o.Size()-r.Len {
		return nil, fmt.Errorf("%v is outside the disk of %d", r, o.Size())
	}
	var out []disk.Extent
	for off := r.Off; off < r.End(); {
		end := min((off/sector+1)*sector, r.End())
		kind := disk.Data
		if o.writers[off/sector] == 0 {
			kind = disk.Zero
		}
		if n := len(out); n > 0 && out[n-1].Kind == kind {
			out[n-1].Len += end - off
		} else {
			out = append(out, disk.Extent{Range: disk.Range{Off: off, Len: end - off}, Kind: kind})
		}
		off = end
	}
	return out, ctx.Err()
}

// Hints returns no preferences.
func (o *Overlay) Hints() disk.Hints { return disk.Hints{} }

// Close does nothing.
func (o *Overlay) Close() error { return nil }

// Compare reads all of src, and returns an error that names the first byte that differs.
func (o *Overlay) Compare(ctx context.Context, src disk.Source) error {
	if src.Size() != o.Size() {
		return fmt.Errorf("the disk has %d bytes, want %d", src.Size(), o.Size())
	}
	const step = 1 << 20
	got, want := make([]byte, step), make([]byte, step)
	for off := int64(0); off < o.Size(); off += step {
		n := min(step, o.Size()-off)
		if err := errors.Join(src.ReadAt(ctx, got[:n], off), o.ReadAt(ctx, want[:n], off)); err != nil {
			return fmt.Errorf("read %d bytes at %d: %w", n, off, err)
		}
		if i := firstDifference(got[:n], want[:n]); i >= 0 {
			at := off + int64(i)
			return fmt.Errorf("byte %d (sector %d) is %#02x, want %#02x of writer %d",
				at, at/sector, got[i], want[i], o.writers[at/sector])
		}
	}
	return nil
}

// firstDifference returns the first index at which a and b differ, or -1. Their lengths must be equal.
func firstDifference(a, b []byte) int {
	if string(a) == string(b) {
		return -1
	}
	i := 0
	for a[i] == b[i] {
		i++
	}
	return i
}
