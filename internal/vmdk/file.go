package vmdk

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
)

// Files opens the files of a disk, for example from a folder or a datastore. Names are as in a
// descriptor: relative to the folder of Files, or absolute below /vmfs/volumes/. An implementation may
// search absolute names elsewhere. Hostile names ("..", devices) have been refused before. A missing
// file is fault.NotFound.
type Files interface {
	// Open opens a file. Its Size is the file's length in bytes, which need not be
	// a multiple of a sector.
	Open(ctx context.Context, name string) (disk.Source, error)
}

// A file is one open file of a disk.
type file struct {
	name  string      // name for errors, as passed to Files.Open
	index int         // index in Disk.files, the value of Run.File
	src   disk.Source // content of the file; owned by the file

	// unpack decompresses a part of one grain of this file. packed begins at the grain's header at r.At
	// and has r.Packed bytes, fewer at the end of the file. unpack fills p with r.Len bytes from offset
	// r.Skip of the grain. It is safe for concurrent use. nil means that no grain is compressed.
	unpack func(packed []byte, r Run, p []byte) error

	// mapping of the whole file, from which small runs are copied; nil if the file is not mapped
	memory []byte

	// offset on the layer's disk of the extent in the file, in bytes
	start int64

	gap   int64      // largest number of unneeded bytes between two runs that one read combines
	ahead *readAhead // read-ahead for small reads; nil if the file cannot be read ahead

	// whether the file system may report holes; true only for flat files
	holes bool
}

// newFile returns the file for src, which it owns from then on. index is its index in Disk.files.
func newFile(name string, index int, src disk.Source) *file {
	// The preferred request size reflects the cost of a request, which is high over a network.
	gap := max(joinGap, src.Hints().Request/4)
	return &file{name: name, index: index, src: src, gap: gap, ahead: newAhead(src)}
}

// size returns the length of the file in bytes.
func (f *file) size() int64 { return f.src.Size() }

// readAt fills p from off. Bytes past the end of the file are zeros, because the last grain of a sparse
// file may be incomplete. Layers check that each grain begins within the file.
func (f *file) readAt(ctx context.Context, p []byte, off int64) error {
	have := max(min(int64(len(p)), f.size()-off), 0)
	clear(p[have:])
	if have == 0 {
		return ctx.Err()
	}
	if err := f.src.ReadAt(ctx, p[:have], off); err != nil {
		return fmt.Errorf("read %s at %d: %w", f.name, off, err)
	}
	return nil
}

// readWhole fills p from off. A range that is not completely in the file is fault.Corrupt.
func (f *file) readWhole(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > f.size() || int64(len(p)) > f.size()-off {
		return corruptFile(f.name, "%d bytes at %d are required, but it ends at %d", len(p), off, f.size())
	}
	return f.readAt(ctx, p, off)
}
