package landing

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// stallAfter is the default of Options.Stall. The host sends no data while it reads zeros, and reports
// whole percents. One percent of the largest disk, 62 TiB, takes 36 minutes at the usual 300 MB/s.
const stallAfter = time.Hour

// runWatched calls run, which copies a disk, and cancels it if the copy makes no progress. run calls
// began when the copy begins: before that, it may wait for others.
func (t *Transport) runWatched(ctx context.Context, c *content, run func(ctx context.Context, began func()) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watched, begun := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-begun:
			t.cancelStalled(ctx, c, cancel)
		case <-ctx.Done():
		}
	}()
	err := run(ctx, sync.OnceFunc(func() { close(begun) }))
	stalled := context.Cause(ctx)
	cancel(nil)
	<-watched
	if err != nil && errors.Is(stalled, errStalled) {
		return fault.New(fault.Transient, "%w", stalled).
			WithHint("check /var/log/vmkernel.log on the host and its datastore; then run the command again, which continues, or use --transport https")
	}
	return err
}

// errStalled is the cause of the context of a stalled copy.
var errStalled = errors.New("the host's copy made no progress for too long and was canceled")

// cancelStalled checks the progress a few times in each Stall, until ctx ends, and calls cancel if the
// copy made no progress. A copy that waits for its turn, in the host or its Copier, has not begun, and
// may wait for days.
func (t *Transport) cancelStalled(ctx context.Context, c *content, cancel context.CancelCauseFunc) {
	const looks = 4
	was, still := c.currentMovement(), 0
	for t.waitFor(ctx, t.opts.Stall/looks) {
		now := c.currentMovement()
		if still++; now != was || now == notBegun {
			was, still = now, 0
		}
		if still >= looks {
			cancel(errStalled)
			return
		}
	}
}

// notBegun is the movement of a copy that has not begun: the first reported percentage is 0.
var notBegun = movement{percent: -1}

// movement changes whenever a copy progresses.
type movement struct {
	held    int64 // bytes that arrived
	percent int32 // percentage that the host reported
}

// currentMovement returns the movement now.
func (c *content) currentMovement() movement { return movement{c.Stats().Held, c.percent.Load()} }
