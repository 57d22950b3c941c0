package writebehind

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// Truncate sets the disk's size. Cut off data reads as zeros when the disk grows again; on the target
// it becomes zeros with the next write, or with Finish. Growing costs nothing, cutting costs the data
// in memory and one record of the manifest.
func (f *File) Truncate(ctx context.Context, size int64) error {
	if size < 0 || size > f.image.size() {
		return fault.New(fault.Invalid, "truncate to %d bytes on a target of %d", size, f.image.size()).
			WithHint("make the target as large as the disk")
	}
	if grown, err := f.growTo(size); grown || err != nil {
		return err
	}
	if err := f.checkpoints.lockSyncing(ctx); err != nil {
		return err
	}
	defer f.checkpoints.unlockSyncing()
	if err := f.checkWritable(); err != nil {
		return err
	}
	// The manifest comes first: after a crash it must not list the old content of chunks that are zeros
	// by now. No checkpoint lists them again while syncing is held.
	if err := f.image.unlistChunks(f.image.chunksAfter(size)); err != nil {
		return f.setError(ctx, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.life.checkReadable(); err != nil {
		return err
	}
	f.cutTo(size)
	return nil
}

// checkWritable fails after an error, Close or Finish.
func (f *File) checkWritable() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.life.checkWritable()
}

// growTo sets the size unless that shortens the disk. It reports whether it did.
func (f *File) growTo(size int64) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.life.checkWritable(); err != nil {
		return false, err
	}
	if size < f.size {
		return false, nil
	}
	f.size = size
	return true, nil
}

// cutTo makes everything after size read as zeros. syncing and mu must be held.
func (f *File) cutTo(size int64) {
	f.size = size
	cut := f.image.chunksAfter(size)
	f.table.blank.Set(cut)
	f.table.dropFrom(chunksIn(disk.Range{Len: cut.Off}))
	f.hashes.removeFrom(cut.Off / manifest.ChunkSize)
	f.cutChunk(size)
}

// cutChunk makes the end of the chunk that contains size read as zeros. mu must be held.
func (f *File) cutChunk(size int64) {
	within := f.image.rangeOf(size / manifest.ChunkSize)
	if size == within.Off || size >= f.image.size() {
		return
	}
	_, exists := f.table.chunks[size/manifest.ChunkSize]
	if !exists && f.table.blank.Has(size) {
		return
	}
	c := f.table.getOrCreate(size / manifest.ChunkSize)
	f.table.addPiece(c, piece{Range: disk.Range{Off: size, Len: within.End() - size}})
	f.table.requeue(c)
	f.checkpoints.startTimer()
	f.writers.startWriter()
}
