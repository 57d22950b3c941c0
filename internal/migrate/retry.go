package migrate

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
)

// A Retrier tries again what fails for a reason that passes. Each retry is an event of the run.
type Retrier struct {
	record *Record
	opts   *Options
}

// Do calls fn until it succeeds, fails for a reason that does not pass, or has failed
// Options.Attempts times without getting further. fn reports whether it got further.
func (r *Retrier) Do(ctx context.Context, diskKey int32, fn func() (further bool, err error)) error {
	return r.doLimited(ctx, r.opts.Attempts, diskKey, fn)
}

// busyAttempts is how often a VM that is busy is asked again: for some ten minutes.
const busyAttempts = 24

// DoBusy calls fn as Do does, for as long as a VM may be busy: it is moved to another
// host, or backed up, and takes neither snapshots nor orders to shut down.
func (r *Retrier) DoBusy(ctx context.Context, fn func() error) error {
	return r.doLimited(ctx, max(busyAttempts, r.opts.Attempts), 0, func() (bool, error) { return false, fn() })
}

// doLimited is Do with another bound on failures that are fault.Transient.
func (r *Retrier) doLimited(ctx context.Context, transient int, diskKey int32, fn func() (further bool, err error)) error {
	for failed := 1; ; failed++ {
		further, err := fn()
		if further {
			failed = 1
		}
		most := r.opts.Attempts
		if fault.Is(err, fault.Transient) {
			most = transient
		}
		if err == nil || ctx.Err() != nil || !isTransient(err) || failed >= most {
			return err
		}
		r.record.Tell(journal.Event{Kind: journal.StepRetried, Disk: diskKey, Failure: journal.FailureOf(err)})
		r.opts.Log.Warn("retrying", "run", r.record.Plan.ID, "step", r.record.step, "disk", diskKey, "err", err)
		if err := r.opts.Sleep(ctx, backOff(failed)); err != nil {
			return err
		}
	}
}

func isTransient(err error) bool {
	k := fault.KindOf(err)
	return k == fault.Transient || k == fault.Unreachable
}

// backOff doubles from one second to thirty.
func backOff(failed int) time.Duration {
	return min(time.Second<<min(failed-1, 10), 30*time.Second)
}
