package landing

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/nfs"
)

// defaultHold is the default of Options.Hold. A host tries a call for 10 s at a time (NFS.SyncRetries),
// and may consider a server that owes answers for longer as lost. Other calls, such as heartbeats, are
// answered meanwhile. Therefore a host with an empty budget still sends its calls in flight (30 writes
// of 64 KiB were seen) every 5 s: 400 KB/s.
const defaultHold = 5 * time.Second

// Write is part of nfs.Content. It delays the reply until the budget allows the bytes, which slows the
// host down.
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

// TryWrite is Write if that need not wait. While a budget is set it never succeeds, because Pace may
// wait.
func (c *content) TryWrite(b *nfs.Buffer, off int64) (taken bool, err error) {
	if c.job.Paced() {
		return false, nil
	}
	return c.File.TryWrite(b, off)
}

// waitForBudget waits until the budget allows so many bytes, but no longer than Options.Hold, and no
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
