package vmdk

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
)

// Files is where a disk's files are: a folder, a datastore. Names are as they stand in
// a descriptor, relative to the folder that Files is for, or absolute (/vmfs/volumes/…),
// which it may look for elsewhere. Hostile ones ("..", devices) were refused before.
// A file that is not there is fault.NotFound.
type Files interface {
	// Open opens a file. Its Size is the file's length in bytes, which need not be
	// a multiple of a sector.
	Open(ctx context.Context, name string) (disk.Source, error)
}

// A file is one open file of a disk.
type file struct {
	name  string
	index int // index in Disk.files, the value of Run.File
	src   disk.Source

	// unpack inflates one packed grain of this file: packed is the run's Packed bytes
	// at its At (fewer at the end of the file), p takes its Len bytes after Skip. It may
	// be called concurrently. Nil: no grain is packed.
	unpack func(packed []byte, r Run, p []byte) error

	// memory is the file mapped, from which its small runs are copied; nil if it is not.
	memory []byte

	// start is where on the disk the extent begins that the file holds.
	start int64

	gap   int64      // unneeded bytes that are read to combine two runs in one read
	ahead *readAhead // read-ahead of its small reads; nil if it is not possible

	// holes reports whether the file system may have holes that no table lists.
	holes bool
}

func newFile(name string, index int, src disk.Source) *file {
	// The preferred size of requests shows the cost of a request, which is high over a network.
	gap := max(joinGap, src.Hints().Request/4)
	return &file{name: name, index: index, src: src, gap: gap, ahead: newAhead(src)}
}

func (f *file) size() int64 { return f.src.Size() }

// readAt fills p from off. What lies beyond the file's end is zeros: the last grain of
// a sparse file need not be there to its end. Layers check that grains begin in the file.
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

// readWhole fills p from off. All of the range must be in the file.
func (f *file) readWhole(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > f.size() || int64(len(p)) > f.size()-off {
		return corruptFile(f.name, "%d bytes at %d are wanted, but it ends at %d", len(p), off, f.size())
	}
	return f.readAt(ctx, p, off)
}
