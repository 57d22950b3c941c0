package landing

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/nfs"
)

// defaultHold is how long the answer to a WRITE is held back for a budget. A host tries a call for
// 10 s at a time (NFS.SyncRetries), and may take a server that owes answers for so long for one
// that is gone. Other calls, the heartbeats among them, are answered meanwhile. So a host that is
// to send nothing still sends what it has in flight (30 writes of 64 KiB were seen) each
// defaultHold: 400 KB/s.
const defaultHold = 5 * time.Second

// Write is part of nfs.Content. To hold its answer back is what slows the host down.
func (c *content) Write(ctx context.Context, b *nfs.Buffer, off int64) error {
	if err := c.waitForBudget(ctx, int64(len(b.Bytes()))); err != nil {
		b.Release()
		return err
	}
	c.stuck.begin(time.Now())
	defer func() { c.stuck.end(time.Now()) }()
	return c.File.Write(ctx, b, off)
}

// Commit is part of nfs.Content.
func (c *content) Commit(ctx context.Context) error {
	c.stuck.begin(time.Now())
	defer func() { c.stuck.end(time.Now()) }()
	return c.File.Commit(ctx)
}

// TryWrite is Write if that takes no waiting, which nobody knows of a budget.
func (c *content) TryWrite(b *nfs.Buffer, off int64) (taken bool, err error) {
	if c.job.Paced() {
		return false, nil
	}
	return c.File.TryWrite(b, off)
}

// waitForBudget waits until so many bytes may have been sent, but no longer than Options.Hold, and no
// longer than the Transfer.
func (c *content) waitForBudget(ctx context.Context, bytes int64) error {
	if !c.job.Paced() {
		return nil
	}
	c.paced.begin(time.Now())
	defer func() { c.paced.end(time.Now()) }()
	held, cancel := context.WithTimeout(ctx, c.hold)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	err := c.job.Pace(held, bytes)
	switch {
	case c.life.Err() != nil:
		return c.life.Err()
	case held.Err() != nil:
		return ctx.Err()
	}
	return err
}
