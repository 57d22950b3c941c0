package qcow2

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
)

// SourceOptions determine how an image is read.
type SourceOptions struct {
	// Direct reads from the medium, past the page cache, if possible. Source.Medium returns the method.
	Direct bool

	// Backing opens the backing files of an image, see OpenFile. nil, the default, refuses an image
	// that has one: the creator of the image chose its name, which can be that of any file of this
	// machine.
	Backing Opener
}

// Source reads a qcow2 image and its backing files. It is a disk.Source.
type Source struct {
	*header
	path    filePath    // path for errors, and the base of relative backing files
	file    disk.Source // content of the image file
	mapping *mapping    // positions of the clusters in file
	shared  *shared     // memory shared with the other images of the chain
	backing disk.Source // backing file; nil without one
	layers  []Layer     // layers of the opened image
}

// OpenSource opens an image for reading.
func OpenSource(path string, o SourceOptions) (*Source, error) {
	file, err := rawfile.OpenSource(path, rawfile.SourceOptions{Direct: o.Direct})
	if err != nil {
		return nil, err
	}
	return openChain(file, path, o)
}

// newSource reads header and L1 table of the image in file. It does not open a backing file. After an
// error the caller still owns file.
func newSource(file disk.Source, path filePath, share *shared) (*Source, error) {
	ctx := context.Background()
	first := make([]byte, min(rawfile.Align, file.Size()))
	if err := file.ReadAt(ctx, first, 0); err != nil {
		return nil, err
	}
	if _, ok := parseNote(first); ok {
		return nil, path.corrupt("it is unfinished: its run has not come to the end").
			WithHint("resume the run that writes %s, or delete it", path.shellQuoted())
	}
	h, err := parseHeader(path, first)
	if err != nil {
		return nil, err
	}
	m := &mapping{header: h, path: path, file: file, cache: h.newCache()}
	return &Source{header: h, path: path, file: file, mapping: m, shared: share}, m.readL1(ctx, share)
}

// Size returns the disk's size in bytes.
func (s *Source) Size() int64 { return s.size }

// Hints returns the hints of the file without a stream.
func (s *Source) Hints() disk.Hints {
	h := s.file.Hints()
	h.Stream = nil // a stream would contain the file's bytes, not the disk's
	return h
}

// Close releases the image and its backing files.
func (s *Source) Close() error {
	err := s.file.Close()
	if s.backing != nil {
		err = errors.Join(err, s.backing.Close())
	}
	return err
}

// ReadAt fills p from off. Clusters that are adjacent in the file are read at once.
func (s *Source) ReadAt(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	if err := s.checkRead(ctx, r); err != nil {
		return err
	}
	for len(p) > 0 {
		run, err := s.firstRun(ctx, disk.Range{Off: off, Len: int64(len(p))})
		if err == nil {
			err = s.readRun(ctx, p[:run.Len], run)
		}
		if err != nil {
			return fmt.Errorf("read qcow2 image %s at %d of the disk: %w", s.path, off, err)
		}
		p, off = p[run.Len:], run.End()
	}
	return nil
}

// checkRead returns an error if r is outside the disk or ctx has ended.
func (s *Source) checkRead(ctx context.Context, r disk.Range) error {
	if err := disk.CheckRange(s.size, r); err != nil {
		return err
	}
	return ctx.Err()
}

// readRun fills p, which has the length of r, with the bytes of the run.
func (s *Source) readRun(ctx context.Context, p []byte, r run) error {
	switch r.kind {
	case standard:
		at := r.entry.off + r.Range.Off - s.grainOf(r.Range.Off)
		return readPadded(ctx, s.file, p, at)
	case compressed:
		return s.readCompressed(ctx, p, r)
	case unallocated:
		if s.backing != nil {
			return readPadded(ctx, s.backing, p, r.Range.Off)
		}
	}
	clear(p)
	return nil
}

// readPadded fills p from offset at of src, with zeros after its end. The last cluster of a file may be
// incomplete, because qemu does not write trailing zeros. A disk may have grown since its overlay was
// created.
func readPadded(ctx context.Context, src disk.Source, p []byte, at int64) error {
	have := max(min(int64(len(p)), src.Size()-at), 0)
	clear(p[have:])
	if have == 0 {
		return ctx.Err()
	}
	return src.ReadAt(ctx, p[:have], at)
}
