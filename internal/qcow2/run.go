package qcow2

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
)

// A run is a range of the disk that is contiguous in the file, or has no data there.
type run struct {
	disk.Range
	entry // entry of the first byte's grain; for compressed clusters size is that of all
}

// firstRun returns the longest run at the beginning of r.
func (s *Source) firstRun(ctx context.Context, r disk.Range) (run, error) {
	first, err := s.mapping.lookup(ctx, r.Off)
	if err != nil {
		return run{}, err
	}
	if first.kind == compressed {
		return s.packedRun(ctx, r, first), nil
	}
	start := s.grainOf(r.Off)
	end := s.mapping.emptyAfter(start+s.grainBytes(), first)
	for end < r.End() {
		e, err := s.mapping.lookup(ctx, end)
		if err != nil || !s.canReadTogether(first, e, end-start) {
			break // the next read finds the error again
		}
		end = s.mapping.emptyAfter(end+s.grainBytes(), e)
	}
	return run{disk.Range{Off: r.Off, Len: min(end, r.End()) - r.Off}, first}, nil
}

// canReadTogether reports whether a grain with entry next can be read together with e. distance is the
// number of bytes between the two on the disk.
func (s *Source) canReadTogether(e, next entry, distance int64) bool {
	switch {
	case e.kind == standard:
		return next.kind == standard && next.off == e.off+distance
	case s.backing == nil:
		return next.kind == unallocated || next.kind == zero
	}
	return next.kind == e.kind
}

// packedBytes is the largest amount of compressed data that one read fetches, in bytes.
const packedBytes = 1 << 20

// packedRun returns the run of compressed clusters at the beginning of r: clusters that are adjacent in
// the file. If r does not contain the whole first cluster, the run has only that one.
func (s *Source) packedRun(ctx context.Context, r disk.Range, first entry) run {
	end := r.Off&^(s.clusterBytes()-1) + s.clusterBytes()
	if s.isWhole(r) {
		last := first
		for end < r.End() && s.isWhole(disk.Range{Off: end, Len: r.End() - end}) {
			e, err := s.mapping.lookup(ctx, end)
			if err != nil || e.kind != compressed || e.off < last.off || e.off > last.off+last.size || e.off+e.size > first.off+packedBytes {
				break // the next read finds the error again
			}
			first.size = max(first.size, e.off+e.size-first.off)
			last, end = e, end+s.clusterBytes()
		}
	}
	return run{disk.Range{Off: r.Off, Len: min(end, r.End()) - r.Off}, first}
}
