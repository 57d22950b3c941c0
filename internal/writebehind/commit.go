package writebehind

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
)

// Commit returns once all earlier Writes are on the medium, and the manifest lists them. If ctx ends
// before that, the work continues in the background.
func (f *File) Commit(ctx context.Context) error {
	b, err := f.startFlush()
	if err != nil {
		return err
	}
	select {
	case <-b.done:
	case <-f.life.failed:
		f.stopWaiting(b)
		return f.stopReason()
	case <-ctx.Done():
		f.stopWaiting(b)
		return ctx.Err()
	}
	return f.checkpoints.runCheckpoint(ctx)
}

// startFlush makes all data in memory urgent. It returns a barrier that is done when that data is
// written.
func (f *File) startFlush() (*barrier, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.life.checkReadable(); err != nil {
		return nil, err
	}
	b := f.table.urgeAll()
	if b.left == 0 {
		return b, nil
	}
	for range f.o.Writers {
		f.writers.startWriter()
	}
	return b, nil
}

// stopWaiting removes a barrier whose Commit no longer waits.
func (f *File) stopWaiting(b *barrier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.removeBarrier(b)
}

// stopReason returns the reason why nothing is written any more.
func (f *File) stopReason() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.life.checkReadable()
}

// Bounds of the time between two checks of ctx in Finish, and of its memory.
const (
	zeroStep = 1 << 30 // bytes that are zeroed at once
	zeroRuns = 4096    // runs that are listed at once
)

// Finish ends the writing: all data becomes durable, and chunks without writes are made zeros and
// listed as such. After it the manifest is complete, the target is synced but not finished, and writes
// are refused. If it fails because ctx ended, it can be called again.
func (f *File) Finish(ctx context.Context) error {
	if err := f.refuseWrites(ctx); err != nil {
		return err
	}
	if err := f.Commit(ctx); err != nil {
		return err
	}
	if err := f.checkpoints.lockSyncing(ctx); err != nil {
		return err
	}
	defer f.checkpoints.unlockSyncing()
	if err := f.fillBlank(ctx); err != nil {
		return f.setError(ctx, err)
	}
	return f.image.checkComplete()
}

// refuseWrites makes further writes fail. It waits for a Truncate that has begun.
func (f *File) refuseWrites(ctx context.Context) error {
	if err := f.checkpoints.lockSyncing(ctx); err != nil {
		return err
	}
	defer f.checkpoints.unlockSyncing()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life.sealed = true
	return nil
}

// setError makes err the file's permanent error, unless the end of the caller's ctx caused it. It
// returns err.
func (f *File) setError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life.fail(err)
	return err
}

// fillBlank zeroes chunks without writes, and then lists them. syncing must be held.
func (f *File) fillBlank(ctx context.Context) error {
	var any bool
	for r := range f.table.blankRuns() {
		any = true
		if err := f.image.unlistChunks(r); err != nil {
			return err
		}
		if err := f.image.zeroRange(ctx, r); err != nil {
			return err
		}
	}
	if !any {
		return nil
	}
	if err := f.image.sync(ctx); err != nil {
		return err
	}
	if err := f.image.listZeros(ctx, f.table.blankRuns()); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.blank.Clear(disk.Range{Len: f.image.size()})
	return nil
}
