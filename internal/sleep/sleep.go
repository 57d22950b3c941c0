// Package sleep waits by the clock. Code that waits has a parameter of the type of For, so that
// tests need not wait.
package sleep

import (
	"context"
	"time"
)

// For waits for d. It returns ctx.Err() if ctx ends first.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
