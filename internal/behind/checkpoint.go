package behind

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/decamp/decamp/internal/manifest"
)

// maxPending bounds the memory of a checkpointer: with so many chunks written and not listed,
// writers wait for the checkpoint. It is 64 GiB of disk, and a few MiB of memory.
const maxPending = 64 << 10

// A checkpointer is what was written and is not listed yet. The file's mu guards it.
type checkpointer struct {
	pending   map[int64]manifest.Hash // written since the last sync began, by chunk
	listing   map[int64]manifest.Hash // being synced, and then appended to the log
	appending bool                    // the log is being written: listing no longer changes
	dirty     bool                    // something was written since the last sync began
	bytes     int64                   // so much
}

func newCheckpointer() checkpointer {
	return checkpointer{pending: map[int64]manifest.Hash{}, listing: map[int64]manifest.Hash{}}
}

func (l *checkpointer) full() bool { return len(l.pending) >= maxPending }

// hold books a chunk that was written.
func (l *checkpointer) hold(chunk int64, h manifest.Hash) { l.pending[chunk] = h }

// forget books out a chunk that is about to change. It must not be appended already.
func (l *checkpointer) forget(chunk int64) {
	delete(l.pending, chunk)
	delete(l.listing, chunk)
}

// lists reports whether the log is just about to list a chunk.
func (l *checkpointer) lists(chunk int64) bool {
	if !l.appending {
		return false
	}
	_, ok := l.listing[chunk]
	return ok
}

// begin is called before the target is synced. It reports false if there is no need to.
func (l *checkpointer) begin() bool {
	if !l.dirty {
		return false
	}
	l.pending, l.listing = l.listing, l.pending
	l.dirty, l.bytes = false, 0
	return true
}

// append is called after the target was synced. It returns what is safe now: chunks that
// changed since begin are not among them.
func (l *checkpointer) append() []manifest.Run {
	l.appending = true
	var runs []manifest.Run
	for _, n := range slices.Sorted(maps.Keys(l.listing)) {
		if last := len(runs) - 1; last >= 0 && runs[last].First+runs[last].Count() == n {
			runs[last].Hashes = append(runs[last].Hashes, l.listing[n])
			continue
		}
		runs = append(runs, manifest.Run{First: n, Hashes: []manifest.Hash{l.listing[n]}})
	}
	return runs
}

// end is called after the log was written.
func (l *checkpointer) end() {
	clear(l.listing)
	l.appending = false
}

// lockSyncing waits for its turn to sync, to list, or to cut.
func (f *File) lockSyncing(ctx context.Context) error {
	select {
	case f.syncing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *File) unlockSyncing() { <-f.syncing }

// checkpoint makes what is written safe, while writing goes on: what it lists was written
// before the sync, and did not change since.
func (f *File) checkpoint(ctx context.Context) error {
	if err := f.lockSyncing(ctx); err != nil {
		return err
	}
	defer f.unlockSyncing()
	f.mu.Lock()
	begun := f.ledger.begin()
	f.mu.Unlock()
	if !begun {
		return nil
	}
	err := f.makeSafe()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ledger.end()
	if err != nil {
		f.fail(err)
		return err
	}
	f.stats.Checkpoints++
	f.kick()
	return nil
}

func (f *File) makeSafe() error {
	if err := f.target.Sync(f.ctx); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	f.mu.Lock()
	runs := f.ledger.append()
	f.mu.Unlock()
	if len(runs) == 0 {
		return nil
	}
	return f.log.Append(f.ctx, runs)
}

// checkpointIfDue starts a checkpoint once enough was written. It needs mu.
func (f *File) checkpointIfDue() {
	if f.ledger.bytes < f.o.CheckpointBytes && !f.ledger.full() {
		return
	}
	f.ledger.bytes = 0
	f.inBackground(func() { _ = f.checkpoint(f.ctx) }) // its error sticks
}

// inBackground runs do in a goroutine that Close waits for. It needs mu.
func (f *File) inBackground(do func()) {
	if f.closed {
		return
	}
	f.group.Go(do)
}

// arm sets the timer, unless it is set. It needs mu.
func (f *File) arm() {
	if f.armed {
		return
	}
	f.armed = true
	f.stop = f.o.AfterFunc(f.o.CheckpointEvery, f.tick)
}

// tick writes what waited in vain for its neighbours, and makes safe what is written. The
// timer goes on as long as there is anything of that kind.
func (f *File) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
	select {
	case <-f.failed:
		return
	default:
	}
	for c := f.partial.first; c != nil; {
		next := c.next
		if c.touched < f.ticks {
			c.urgent = true
			f.settle(c)
		}
		c = next
	}
	f.ticks++
	f.kick()
	f.inBackground(f.tock)
}

func (f *File) tock() {
	_ = f.checkpoint(f.ctx) // its error sticks
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.failed:
		return
	default:
	}
	if len(f.chunks) > 0 || f.ledger.dirty {
		f.arm()
	}
}
