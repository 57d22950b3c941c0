package fleet

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/sleep"
)

// minReadInterval is the minimum time between two reads of changes. A VM changes its row a dozen times
// during its migration; with eighty VMs, reading each change separately would use most of the processor
// time.
const minReadInterval = 20 * time.Millisecond

// A throttle limits how often one reader reads changes. It uses the real clock also if a Node has a
// simulated one: no decision depends on it.
type throttle struct{ last time.Time }

// wait returns when minReadInterval has passed since the last call. It returns an error if ctx ends.
func (t *throttle) wait(ctx context.Context) error {
	var err error
	if early := minReadInterval - time.Since(t.last); early > 0 {
		err = sleep.For(ctx, early)
	}
	t.last = time.Now()
	return err
}
