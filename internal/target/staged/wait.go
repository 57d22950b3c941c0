package staged

import (
	"context"
	"time"
)

// Wait waits by the clock, or until ctx ends, whose error it returns.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
