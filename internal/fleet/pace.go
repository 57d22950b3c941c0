package fleet

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/sleep"
)

// gatherTime is how soon after the last time the roster is read again by one who follows it.
// A VM on its way through the pipeline changes its row a dozen times: under load, with eighty
// of them, whoever read at each change would do little else.
const gatherTime = 20 * time.Millisecond

// A pace keeps one follower from reading more often than that. It is real time, also where a
// Node's is not: nothing that is decided depends on it.
type pace struct{ last time.Time }

// wait returns at once if the last time is long ago.
func (p *pace) wait(ctx context.Context) error {
	var err error
	if early := gatherTime - time.Since(p.last); early > 0 {
		err = sleep.For(ctx, early)
	}
	p.last = time.Now()
	return err
}
