package qcow2

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
)

// Extents describes r by its allocation, and allocated parts by the file's holes: an image with
// preallocated tables has a cluster for each byte, and data in few of them.
func (s *Source) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := s.checkRead(ctx, r); err != nil {
		return nil, err
	}
	var out extents
	for off := r.Off; off < r.End(); {
		run, err := s.firstRun(ctx, disk.Range{Off: off, Len: r.End() - off})
		if err == nil {
			err = s.addRun(ctx, &out, run)
		}
		if err != nil {
			return nil, fmt.Errorf("describe qcow2 image %s at %d of the disk: %w", s.path, off, err)
		}
		off = run.End()
	}
	return out, nil
}

// Own returns the ordered ranges of r that the image itself describes, as data or as zeros. The rest of
// the disk is in the backing files.
func (s *Source) Own(ctx context.Context, r disk.Range) ([]disk.Range, error) {
	if err := s.checkRead(ctx, r); err != nil {
		return nil, err
	}
	var out []disk.Range
	for off := r.Off; off < r.End(); {
		run, err := s.firstRun(ctx, disk.Range{Off: off, Len: r.End() - off})
		if err != nil {
			return nil, fmt.Errorf("describe qcow2 image %s at %d of the disk: %w", s.path, off, err)
		}
		off = run.End()
		if run.kind == unallocated && s.backing != nil {
			continue
		}
		if n := len(out); n > 0 && out[n-1].End() == run.Range.Off {
			out[n-1].Len += run.Range.Len
			continue
		}
		out = append(out, run.Range)
	}
	return out, nil
}

// addRun adds the extents of run r to out. It requests the holes of plain clusters from the file, and
// absent ranges from the backing file.
func (s *Source) addRun(ctx context.Context, out *extents, r run) error {
	switch r.kind {
	case standard:
		at := r.entry.off + r.Range.Off - s.grainOf(r.Range.Off)
		return out.addPadded(ctx, s.file, r.Range, at)
	case compressed:
		out.add(r.Range, disk.Data)
		return nil
	case unallocated:
		if s.backing != nil {
			return out.addPadded(ctx, s.backing, r.Range, r.Range.Off)
		}
	}
	out.add(r.Range, disk.Zero)
	return nil
}

// An extents is a list of extents in ascending order. Neighbours have different kinds.
type extents []disk.Extent

// add appends r, which must begin at the end of the last extent.
func (x *extents) add(r disk.Range, k disk.Kind) {
	if r.Empty() {
		return
	}
	if n := len(*x); n > 0 && (*x)[n-1].Kind == k {
		(*x)[n-1].Len += r.Len
		return
	}
	*x = append(*x, disk.Extent{Range: r, Kind: k})
}

// addPadded appends r, whose bytes are at offset at of src. Bytes after the end of src are zeros.
func (x *extents) addPadded(ctx context.Context, src disk.Source, r disk.Range, at int64) error {
	have := max(min(r.Len, src.Size()-at), 0)
	if have > 0 {
		found, err := src.Extents(ctx, disk.Range{Off: at, Len: have})
		if err != nil {
			return err
		}
		for _, e := range found {
			x.add(disk.Range{Off: r.Off + e.Off - at, Len: e.Len}, e.Kind)
		}
	}
	x.add(disk.Range{Off: r.Off + have, Len: r.Len - have}, disk.Zero)
	return nil
}
