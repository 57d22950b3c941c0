package fleet

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/sleep"
)

// minReadInterval is the minimum time between two reads of changes. A VM changes its row a dozen times
// during its migration: with eighty VMs, a process that reads each change separately would do little
// else.
const minReadInterval = 20 * time.Millisecond

// A throttle keeps one reader from reading more often than that. It uses the real time also where a Node has a
// simulated clock: no decision depends on it.
type throttle struct{ last time.Time }

// wait returns once minReadInterval has passed since the last call.
func (t *throttle) wait(ctx context.Context) error {
	var err error
	if early := minReadInterval - time.Since(t.last); early > 0 {
		err = sleep.For(ctx, early)
	}
	t.last = time.Now()
	return err
}
