package landing

import (
	"context"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// stallAfter is how long a copy may show no sign of life: no byte, no percent. The host says
// nothing while it reads zeros, and says one percent at a time: of the largest disk there
// is, 62 TiB, that is 36 minutes at the 300 MB/s that are usual.
const stallAfter = time.Hour

// attend runs a copy at the host, and ends it if it stands still.
func (t *Transport) attend(ctx context.Context, c *content, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		t.watch(ctx, c, cancel)
	}()
	err := run(ctx)
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

// watch looks a few times in each Stall, until ctx ends.
func (t *Transport) watch(ctx context.Context, c *content, cancel context.CancelCauseFunc) {
	const looks = 4
	was, still := c.moved(), 0
	for t.pause(ctx, t.opts.Stall/looks) {
		now := c.moved()
		if still++; now != was {
			was, still = now, 0
		}
		if still >= looks {
			cancel(errStalled)
			return
		}
	}
}

// movement is what changes as long as a copy gets on.
type movement struct {
	held    int64
	percent int32
}

func (c *content) moved() movement { return movement{c.Stats().Held, c.percent.Load()} }
