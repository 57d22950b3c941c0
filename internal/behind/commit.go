package behind

import (
	"context"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// A barrier is a Commit that waits for what was held when it began.
type barrier struct {
	epoch uint64        // batches that began in this or an earlier one count
	left  int           // of them
	done  chan struct{} // closed when none is left
}

// Commit returns once all that Write had returned for is on the medium, and the manifest
// lists it. If ctx ends before that, it goes on without anybody waiting for it.
func (f *File) Commit(ctx context.Context) error {
	b, err := f.flush()
	if err != nil {
		return err
	}
	select {
	case <-b.done:
	case <-f.failed:
		f.lift(b)
		return f.reason()
	case <-ctx.Done():
		f.lift(b)
		return ctx.Err()
	}
	return f.checkpoint(ctx)
}

// flush makes all that is held urgent, and returns a barrier before which it lies.
func (f *File) flush() (*barrier, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.readable(); err != nil {
		return nil, err
	}
	b := &barrier{epoch: f.epoch, left: f.batches, done: make(chan struct{})}
	f.epoch++
	if b.left == 0 {
		close(b.done)
		return b, nil
	}
	f.barriers = append(f.barriers, b)
	for _, c := range f.chunks {
		if len(c.held) > 0 {
			c.urgent = true
			f.settle(c)
		}
	}
	for range f.o.Writers {
		f.kick()
	}
	return b, nil
}

// ended books a batch that began in an epoch as written, or given up. It needs mu.
func (f *File) ended(epoch uint64) {
	f.batches--
	for _, b := range f.barriers {
		if epoch > b.epoch {
			continue
		}
		if b.left--; b.left == 0 {
			close(b.done)
		}
	}
	f.barriers = slices.DeleteFunc(f.barriers, func(b *barrier) bool { return b.left == 0 })
}

// lift takes a barrier away that nobody waits for any more.
func (f *File) lift(b *barrier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.barriers = slices.DeleteFunc(f.barriers, func(c *barrier) bool { return b == c })
}

// reason returns why nothing is written any more.
func (f *File) reason() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readable()
}

// zeroStep is how much is zeroed at once, and zeroRuns how many runs are listed at once:
// both bound how long ctx is not looked at, and the memory.
const (
	zeroStep = 1 << 30
	zeroRuns = 4096
)

// Finish ends the writing: all that is held becomes safe, and chunks that nobody wrote are
// made zeros and listed as such. After it the manifest is complete, the target is synced
// but not finished, and nothing can be written. If it fails because ctx ended, it can be
// called again.
func (f *File) Finish(ctx context.Context) error {
	if err := f.seal(ctx); err != nil {
		return err
	}
	if err := f.Commit(ctx); err != nil {
		return err
	}
	if err := f.lockSyncing(ctx); err != nil {
		return err
	}
	defer f.unlockSyncing()
	if err := f.fillBlank(ctx); err != nil {
		return f.stick(ctx, err)
	}
	if f.log != nil && !f.log.Complete() {
		return fault.New(fault.Internal, "the manifest of a finished disk lacks %d chunks", f.log.Missing())
	}
	return nil
}

// seal lets nothing be written any more. A Truncate that has begun ends before.
func (f *File) seal(ctx context.Context) error {
	if err := f.lockSyncing(ctx); err != nil {
		return err
	}
	defer f.unlockSyncing()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sealed = true
	return nil
}

// stick makes err stick, unless the caller's ctx is the reason for it.
func (f *File) stick(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail(err)
	return err
}

// fillBlank makes zeros of what nobody wrote, and then lists them. It needs syncing.
func (f *File) fillBlank(ctx context.Context) error {
	var any bool
	for r := range f.blankRuns() {
		any = true
		if err := f.unlistRange(r); err != nil {
			return err
		}
		if err := f.target.Zero(ctx, r); err != nil {
			return fmt.Errorf("zero %v: %w", r, err)
		}
	}
	if !any {
		return nil
	}
	if err := f.target.Sync(ctx); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := f.listBlank(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blank.Clear(disk.Range{Len: f.target.Size()})
	return nil
}

func (f *File) listBlank(ctx context.Context) error {
	if f.log == nil {
		return nil
	}
	var runs []manifest.Run
	for r := range f.blankRuns() {
		runs = append(runs, manifest.Run{First: r.Off / manifest.ChunkSize, Zeros: chunksIn(r)})
		if len(runs) < zeroRuns {
			continue
		}
		if err := f.log.Append(ctx, runs); err != nil {
			return err
		}
		runs = runs[:0]
	}
	if len(runs) == 0 {
		return nil
	}
	return f.log.Append(ctx, runs)
}

// blankRuns yields runs of blank chunks in order, each zeroStep long at most. A sealed
// file has no others than those it has at the beginning.
func (f *File) blankRuns() func(yield func(disk.Range) bool) {
	return func(yield func(disk.Range) bool) {
		size := f.target.Size()
		for off := int64(0); off < size; {
			step := disk.Range{Off: off, Len: min(zeroStep, size-off)}
			r := f.blank.Next(step)
			if r.Empty() {
				off = step.End()
				continue
			}
			if !yield(r) {
				return
			}
			off = r.End()
		}
	}
}

// chunksIn returns how many chunks r has, which begins with one and ends with one.
func chunksIn(r disk.Range) int64 {
	return (r.Len + manifest.ChunkSize - 1) / manifest.ChunkSize
}

// unlistRange drops the chunks of r from the log if it lists any.
func (f *File) unlistRange(r disk.Range) error {
	if f.log == nil || r.Empty() || f.log.Missing() == f.log.Chunks() {
		return nil
	}
	first, n := r.Off/manifest.ChunkSize, chunksIn(r)
	for c := first; c < first+n; c++ {
		if f.log.Has(c) {
			return f.log.Drop(first, n)
		}
	}
	return nil
}
