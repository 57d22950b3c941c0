package migrate

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
)

// A Retrier repeats work that fails for a reason that passes. Each retry is an event of the run.
type Retrier struct {
	record *Record  // receives the events
	opts   *Options // number of attempts, and the clock
}

// Do calls fn until it succeeds, fails for a permanent reason, or has failed Options.Attempts times
// without progress. fn reports whether it made progress.
func (r *Retrier) Do(ctx context.Context, diskKey int32, fn func() (further bool, err error)) error {
	return r.doLimited(ctx, r.opts.Attempts, diskKey, fn)
}

// busyAttempts is the number of attempts at a VM that is busy: about ten minutes.
const busyAttempts = 24

// DoBusy calls fn as Do does, for as long as a VM may be busy: while it is moved to another host, or
// backed up, it accepts neither snapshots nor shutdowns.
func (r *Retrier) DoBusy(ctx context.Context, fn func() error) error {
	return r.doLimited(ctx, max(busyAttempts, r.opts.Attempts), 0, func() (bool, error) { return false, fn() })
}

// doLimited is Do with another limit of failures that are fault.Transient.
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
		r.record.Report(journal.Event{Kind: journal.StepRetried, Disk: diskKey, Failure: journal.FailureOf(err)})
		r.opts.Log.Warn("retrying", "run", r.record.Plan.ID, "step", r.record.step, "disk", diskKey, "err", err)
		if err := r.opts.Sleep(ctx, backOff(failed)); err != nil {
			return err
		}
	}
}

// isTransient reports whether err can pass without a change by an operator.
func isTransient(err error) bool {
	k := fault.KindOf(err)
	return k == fault.Transient || k == fault.Unreachable
}

// backOff returns the pause after that many failures: it doubles from one second to thirty.
func backOff(failed int) time.Duration {
	return min(time.Second<<min(failed-1, 10), 30*time.Second)
}
