package behind

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// Truncate sets the disk's size. What was cut off reads as zeros when the disk grows
// again; on the target it becomes zeros when it is written again, or with Finish. Growing
// costs nothing, cutting what is held and one record of the manifest.
func (f *File) Truncate(ctx context.Context, size int64) error {
	if size < 0 || size > f.target.Size() {
		return fault.New(fault.Invalid, "truncate to %d bytes on a target of %d", size, f.target.Size()).
			WithHint("make the target as large as the disk")
	}
	if grown, err := f.grow(size); grown || err != nil {
		return err
	}
	if err := f.lockSyncing(ctx); err != nil {
		return err
	}
	defer f.unlockSyncing()
	if err := f.mayWrite(); err != nil {
		return err
	}
	// First the manifest: a crash from here on must not find chunks that are zeros by now
	// listed with what they were. No checkpoint lists them again while we have syncing.
	if err := f.unlistRange(f.behind(size)); err != nil {
		return f.stick(ctx, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.readable(); err != nil {
		return err
	}
	f.cut(size)
	return nil
}

func (f *File) mayWrite() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writable()
}

// grow sets the size unless that cuts something off.
func (f *File) grow(size int64) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.writable(); err != nil {
		return false, err
	}
	if size < f.size {
		return false, nil
	}
	f.size = size
	return true, nil
}

// behind returns the chunks of which nothing lies before size.
func (f *File) behind(size int64) disk.Range {
	off := min((size+manifest.ChunkSize-1)/manifest.ChunkSize*manifest.ChunkSize, f.target.Size())
	return disk.Range{Off: off, Len: f.target.Size() - off}
}

// cut makes everything from size on zeros. It needs syncing and mu.
func (f *File) cut(size int64) {
	f.size = size
	gone := f.behind(size)
	f.blank.Set(gone)
	for _, c := range f.chunks {
		if c.number*manifest.ChunkSize < gone.Off {
			continue
		}
		f.drop(c)
		c.void = c.busy
		f.settle(c)
	}
	f.ledger.cut(gone.Off / manifest.ChunkSize)
	f.cutChunk(size)
}

// cutChunk makes zeros of the end of the chunk that size lies in. It needs mu.
func (f *File) cutChunk(size int64) {
	within := f.rangeOf(size / manifest.ChunkSize)
	if size == within.Off || size >= f.target.Size() {
		return
	}
	_, exists := f.chunks[size/manifest.ChunkSize]
	if !exists && f.blank.Has(size) {
		return
	}
	c := f.chunk(size / manifest.ChunkSize)
	f.hold(c, piece{Range: disk.Range{Off: size, Len: within.End() - size}})
	f.settle(c)
	f.arm()
	f.kick()
}

// cut books out all chunks from the first on.
func (l *checkpointer) cut(first int64) {
	for n := range l.pending {
		if n >= first {
			delete(l.pending, n)
		}
	}
}
