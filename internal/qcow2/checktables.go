package qcow2

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
)

// Tables are the tables of a finished image as they were read back and checked.
type Tables struct {
	layout
	used *bitmap.Bitmap // clusters of the disk that the L2 tables map
}

// At returns the offset in the file of the byte at off of the disk. held is false if the byte has no
// position and reads as zero.
func (t *Tables) At(off int64) (at int64, held bool) { return t.data.Off + off, t.used.Has(off) }

// At returns the offset in the file of the byte at off of the disk. held is always true.
func (u *Unfinished) At(off int64) (at int64, held bool) { return u.data.Off + off, true }

// CheckTables reads header, refcounts, L1 and L2 of an unchanged image that Finish wrote for a disk of
// size bytes, and compares all meaningful bytes with the output of Finish for the mapped clusters.
// Another mapping, a wrong count or a flipped bit is fault.Corrupt. It reads each table once: 16 MiB
// for 100 GiB of data.
//
// The code that reads images determines the mapping; the code that writes them provides the expected
// bytes.
func (s *Source) CheckTables(ctx context.Context, size int64) (*Tables, error) {
	im, err := s.expectedImage(size)
	c := &tableCheck{m: s.mapping, im: im}
	if err == nil {
		err = c.checkL2(ctx)
	}
	if err == nil {
		err = im.eachBesidesL2(func(b block) error { return c.compareBlock(ctx, b) })
	}
	if err == nil {
		err = c.compareFirst(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("check tables of qcow2 image %s: %w", s.path, err)
	}
	return &Tables{im.layout, im.used}, nil
}

// A tableCheck compares the tables of a finished image with those that im, an Image of the same layout,
// would write. It belongs to one call of CheckTables.
type tableCheck struct {
	m  *mapping // mapping as the reader parsed it
	im *Image   // without a file; its used clusters are those found so far
}

// expectedImage returns an Image of the same layout without clusters in use and without a file. A
// header that Finish would not write for a disk of size bytes is fault.Corrupt.
func (s *Source) expectedImage(size int64) (*Image, error) {
	l, err := finishedLayout(s.header)
	if err != nil {
		return nil, err
	}
	if l.size != size || *s.header != *l.newHeader() || s.file.Size() != l.end() {
		return nil, s.path.corrupt("its header is not the one that was written")
	}
	return newImage(l, nil), nil
}

// checkL2 records which clusters are mapped, and compares each L2 table with the expected one.
func (c *tableCheck) checkL2(ctx context.Context) error {
	for i := range c.im.tableCount() {
		if err := c.recordMapped(ctx, c.im.tableRange(i)); err != nil {
			return err
		}
		err := c.im.emitL2(i, func(b block) error {
			found, err := c.m.l2Slice(ctx, b.off, i) // the slice is cached from the previous read
			if err != nil {
				return err
			}
			return c.m.path.compareBlock(b, found)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// recordMapped records which clusters of r are mapped; one table must map all of r. A mapping to
// another offset than that of the layout is fault.Corrupt.
func (c *tableCheck) recordMapped(ctx context.Context, r disk.Range) error {
	if c.m.emptyUntil(r.Off) > r.Off {
		return nil // no table
	}
	for off := r.Off; off < r.End(); off += clusterSize {
		e, err := c.m.lookup(ctx, off)
		switch {
		case err != nil:
			return err
		case e.kind == unallocated:
		case e.kind != standard || e.off != c.im.data.Off+off:
			return c.m.path.corrupt("cluster %d of the disk is mapped to %#x of the file, it was written to %#x", off/clusterSize, e.off, c.im.data.Off+off)
		default:
			c.im.used.Set(disk.Range{Off: off, Len: clusterSize})
		}
	}
	return nil
}

// compareFirst compares the first cluster, which contains the header and zeros.
func (c *tableCheck) compareFirst(ctx context.Context) error {
	first := make([]byte, clusterSize)
	copy(first, c.im.newHeader().encode())
	return c.compareBlock(ctx, block{0, "header", first})
}

// compareBlock reads the block from the file and compares it.
func (c *tableCheck) compareBlock(ctx context.Context, b block) error {
	found := make([]byte, len(b.data))
	if err := c.m.file.ReadAt(ctx, found, b.off); err != nil {
		return err
	}
	return c.m.path.compareBlock(b, found)
}

// compareBlock returns fault.Corrupt with the first byte of found that differs from b.
func (p filePath) compareBlock(b block, found []byte) error {
	for i := range b.data {
		if found[i] != b.data[i] {
			return p.corrupt("the %s at %#x has %#02x at byte %d, %#02x was written", b.name, b.off, found[i], i, b.data[i])
		}
	}
	return nil
}
