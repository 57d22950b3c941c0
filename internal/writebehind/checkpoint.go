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
	image   *image
	table   *chunkTable
	hashes  *pendingHashes
	life    *lifecycle
	writers *writers

	bytes     int64 // written since the last checkpoint, that make another one due
	every     time.Duration
	afterFunc func(d time.Duration, f func()) (stop func() bool)

	syncing chan struct{} // has a token while a caller syncs, lists or cuts; never closed

	mu    *sync.Mutex // the file's; it guards what follows
	armed bool
	stop  func() bool // the timer
	made  int         // checkpoints since New
}

// newCheckpointer returns a checkpointer of what w writes.
func newCheckpointer(w *writers, o Options) checkpointer {
	return checkpointer{
		image: w.image, table: w.table, hashes: w.hashes, life: w.life, writers: w, mu: w.mu,
		bytes: o.CheckpointBytes, every: o.CheckpointEvery, afterFunc: o.AfterFunc,
		syncing: make(chan struct{}, 1),
	}
}

// lockSyncing waits for its turn to sync, to list, or to cut.
func (c *checkpointer) lockSyncing(ctx context.Context) error {
	select {
	case c.syncing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *checkpointer) unlockSyncing() { <-c.syncing }

// runCheckpoint makes written chunks durable while writing continues: the chunks that it lists were written
// before the sync, and are unchanged since.
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

// runIfDue starts a checkpoint once enough was written. It needs mu.
func (c *checkpointer) runIfDue() {
	if c.hashes.bytes < c.bytes && !c.hashes.isFull() {
		return
	}
	c.hashes.bytes = 0
	c.life.inBackground(func() { _ = c.runCheckpoint(c.image.ctx) }) // its error sticks
}

// startTimer sets the timer, unless it is set. It needs mu.
func (c *checkpointer) startTimer() {
	if c.armed {
		return
	}
	c.armed = true
	c.stop = c.afterFunc(c.every, c.onTimer)
}

// onTimer writes chunks that were not completed in time, and makes written chunks durable. The timer
// continues while there are any.
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

func (c *checkpointer) checkpointAndRearm() {
	_ = c.runCheckpoint(c.image.ctx) // its error sticks
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.isOver() {
		return
	}
	if !c.table.isEmpty() || c.hashes.dirty {
		c.startTimer()
	}
}

// stopTimer stops the timer. It needs mu.
func (c *checkpointer) stopTimer() {
	if c.armed {
		c.stop()
	}
}
