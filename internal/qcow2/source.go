package qcow2

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
)

// SourceOptions say how an image is read.
type SourceOptions struct {
	// Direct reads from the medium, past the page cache, if there is any way to.
	// Source.Medium says which way it was.
	Direct bool
}

// Source reads a qcow2 image. It is a disk.Source.
type Source struct {
	*header
	file      disk.Source
	l1        []int64 // offset of each L2 table; 0 if there is none
	cache     []cacheSlot
	inflaters sync.Pool
	medium    func() string
}

// OpenSource opens an image for reading.
func OpenSource(path string, o SourceOptions) (*Source, error) {
	file, err := rawfile.OpenSource(path, rawfile.SourceOptions{Direct: o.Direct})
	if err != nil {
		return nil, err
	}
	s, err := newSource(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open qcow2 image %s: %w", path, err), file.Close())
	}
	s.medium = file.Medium
	return s, nil
}

// newSource reads header and L1 table of the image in file.
func newSource(file disk.Source) (*Source, error) {
	ctx := context.Background()
	first := make([]byte, min(rawfile.Align, file.Size()))
	if err := file.ReadAt(ctx, first, 0); err != nil {
		return nil, err
	}
	if _, ok := parseNote(first); ok {
		return nil, corrupt("it is unfinished: its run has not come to the end")
	}
	h, err := parseHeader(first)
	if err != nil {
		return nil, err
	}
	s := &Source{header: h, file: file, cache: newCache(h.cluster()), inflaters: sync.Pool{New: newInflater}}
	return s, s.readL1(ctx)
}

// Size returns the disk's size in bytes.
func (s *Source) Size() int64 { return s.size }

// Medium says where all bytes read so far came from, as rawfile.Source.Medium does.
func (s *Source) Medium() string { return s.medium() }

// Hints are the file's.
func (s *Source) Hints() disk.Hints { return s.file.Hints() }

// Close releases the image.
func (s *Source) Close() error { return s.file.Close() }

// ReadAt fills p from off. Clusters that lie one after the other in the file are read at
// once.
func (s *Source) ReadAt(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	if err := disk.CheckRange(s.size, r); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for len(p) > 0 {
		run, err := s.run(disk.Range{Off: off, Len: int64(len(p))})
		if err == nil {
			err = s.readRun(ctx, p[:run.Len], run)
		}
		if err != nil {
			return fmt.Errorf("read qcow2 disk at %d: %w", off, err)
		}
		p, off = p[run.Len:], run.End()
	}
	return nil
}

// Extents describes r by what is allocated.
func (s *Source) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := disk.CheckRange(s.size, r); err != nil {
		return nil, err
	}
	var out []disk.Extent
	for off := r.Off; off < r.End(); {
		run, err := s.run(disk.Range{Off: off, Len: r.End() - off})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("describe qcow2 disk at %d: %w", off, err)
		}
		if n := len(out); n > 0 && out[n-1].Kind == run.diskKind() {
			out[n-1].Len += run.Len
		} else {
			out = append(out, disk.Extent{Range: run.Range, Kind: run.diskKind()})
		}
		off = run.End()
	}
	return out, nil
}

// A run is a range of the disk that is one piece of the file.
type run struct {
	disk.Range
	entry // of the first byte's cluster
}

// run returns the longest run at the beginning of r.
func (s *Source) run(r disk.Range) (run, error) {
	first, err := s.lookup(r.Off)
	if err != nil {
		return run{}, err
	}
	end := min(s.next(r.Off), r.End())
	for end < r.End() && first.kind != compressed {
		if first.kind == unallocated {
			end = min(max(end, s.emptyUntil(end)), r.End())
		}
		if end == r.End() {
			break
		}
		e, err := s.lookup(end)
		if err != nil || !first.continues(e, end-r.Off&^(s.cluster()-1)) {
			break // an error is found again by whoever asks for what comes next
		}
		end = min(s.next(end), r.End())
	}
	return run{disk.Range{Off: r.Off, Len: end - r.Off}, first}, nil
}

// next returns the offset of the cluster after the one that off is in.
func (s *Source) next(off int64) int64 { return off&^(s.cluster()-1) + s.cluster() }

func (s *Source) readRun(ctx context.Context, p []byte, r run) error {
	inCluster := r.Range.Off & (s.cluster() - 1)
	switch r.kind {
	case standard:
		return s.readStandard(ctx, p, r.entry.off+inCluster)
	case compressed:
		return s.readCompressed(ctx, p, r.entry, inCluster)
	}
	clear(p)
	return nil
}

// readStandard reads p from the file, whose last cluster need not be there to its end:
// qemu does not write what it knows to be zeros.
func (s *Source) readStandard(ctx context.Context, p []byte, at int64) error {
	have := max(min(int64(len(p)), s.file.Size()-at), 0)
	clear(p[have:])
	return s.file.ReadAt(ctx, p[:have], at)
}
