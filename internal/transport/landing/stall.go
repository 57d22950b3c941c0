package landing

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// stallAfter is how long a copy may show no sign of life: no byte, no percent. The host says
// nothing while it reads zeros, and says one percent at a time: of the largest disk there
// is, 62 TiB, that is 36 minutes at the 300 MB/s that are usual.
const stallAfter = time.Hour

// runWatched runs a copy at the host, and ends it if it stands still. run tells when it has
// begun: until then it may wait for others.
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
			WithHint("see the host's vmkernel.log and the health of its datastore; run the command again to go on, or copy by --transport https")
	}
	return err
}

var errStalled = errors.New("the host's copy stood still for too long and was canceled")

// cancelStalled looks a few times in each Stall, until ctx ends. A copy that waits for its turn, at
// the host or in its Copier, has not begun, and may wait for days.
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

// unbegun is what has not moved at all: the first percent that is told is 0.
var notBegun = movement{percent: -1}

// movement is what changes as long as a copy gets on.
type movement struct {
	held    int64
	percent int32
}

func (c *content) currentMovement() movement { return movement{c.Stats().Held, c.percent.Load()} }
