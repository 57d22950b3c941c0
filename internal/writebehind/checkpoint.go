package writebehind

import (
	"context"
	"sync"
	"time"
)

// A checkpointer makes written chunks durable: it syncs the target, and then lists in the log the
// chunks written before. It runs after enough writes, when the timer ends, and for Commit. syncing is
// locked before mu, and is the only lock that is held during I/O.
type checkpointer struct {
	image   *image         // target and log
	table   *chunkTable    // chunks in memory
	hashes  *pendingHashes // chunks that are written and not listed yet
	life    *lifecycle     // receives errors, and runs background work
	writers *writers       // started again after a checkpoint

	bytes     int64                                              // Options.CheckpointBytes: written bytes that make a checkpoint due
	every     time.Duration                                      // Options.CheckpointEvery
	afterFunc func(d time.Duration, f func()) (stop func() bool) // Options.AfterFunc

	syncing chan struct{} // contains a token while a goroutine syncs, lists or truncates; never closed

	mu    *sync.Mutex // the file's mu; it guards the fields below
	armed bool        // the timer runs
	stop  func() bool // stops the timer, if armed
	made  int         // checkpoints since New
}

// newCheckpointer returns a checkpointer for the chunks that w writes.
func newCheckpointer(w *writers, o Options) checkpointer {
	return checkpointer{
		image: w.image, table: w.table, hashes: w.hashes, life: w.life, writers: w, mu: w.mu,
		bytes: o.CheckpointBytes, every: o.CheckpointEvery, afterFunc: o.AfterFunc,
		syncing: make(chan struct{}, 1),
	}
}

// lockSyncing waits until no other goroutine syncs, lists or truncates. It fails if ctx ends.
func (c *checkpointer) lockSyncing(ctx context.Context) error {
	select {
	case c.syncing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unlockSyncing ends the exclusion that lockSyncing started.
func (c *checkpointer) unlockSyncing() { <-c.syncing }

// runCheckpoint makes written chunks durable while writing continues. It lists only chunks that were
// written before the sync and are unchanged since. ctx bounds the wait for other checkpoints, not the
// sync.
func (c *checkpointer) runCheckpoint(ctx context.Context) error {
	if err := c.lockSyncing(ctx); err != nil {
		return err
	}
	defer c.unlockSyncing()
	c.mu.Lock()
	begun := c.hashes.beginListing()
	c.mu.Unlock()
	if !begun {
		return nil
	}
	err := c.makeDurable()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hashes.endListing()
	if err != nil {
		c.life.fail(err)
		return err
	}
	c.made++
	c.writers.startWriter()
	return nil
}

// makeDurable syncs the target and lists the chunks. syncing must be held.
func (c *checkpointer) makeDurable() error {
	if err := c.image.sync(c.image.ctx); err != nil {
		return err
	}
	c.mu.Lock()
	runs := c.hashes.runsToList()
	c.mu.Unlock()
	if len(runs) == 0 {
		return nil
	}
	return c.image.listChunks(c.image.ctx, runs)
}

// runIfDue starts a checkpoint in the background once enough was written. mu must be held.
func (c *checkpointer) runIfDue() {
	if c.hashes.bytes < c.bytes && !c.hashes.isFull() {
		return
	}
	c.hashes.bytes = 0
	c.life.inBackground(func() { _ = c.runCheckpoint(c.image.ctx) }) // the error is stored
}

// startTimer starts the timer, unless it runs. mu must be held.
func (c *checkpointer) startTimer() {
	if c.armed {
		return
	}
	c.armed = true
	c.stop = c.afterFunc(c.every, c.onTimer)
}

// onTimer makes idle incomplete chunks urgent, and starts a checkpoint in the background.
func (c *checkpointer) onTimer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	if c.life.isOver() {
		return
	}
	c.table.urgeIdle()
	c.writers.startWriter()
	c.life.inBackground(c.checkpointAndRearm)
}

// checkpointAndRearm runs a checkpoint, and starts the timer again while there is data in memory or
// unlisted chunks.
func (c *checkpointer) checkpointAndRearm() {
	_ = c.runCheckpoint(c.image.ctx) // the error is stored
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.isOver() {
		return
	}
	if !c.table.isEmpty() || c.hashes.dirty {
		c.startTimer()
	}
}

// stopTimer stops the timer. mu must be held.
func (c *checkpointer) stopTimer() {
	if c.armed {
		c.stop()
	}
}
