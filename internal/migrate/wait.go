package migrate

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
)

// Cutover says when a warm run switches the VM off. Whatever comes first counts; with none
// of them the operator says so (plan.Order).
type Cutover struct {
	At       time.Time     // zero: no time is set
	Budget   time.Duration // once the outage is expected to be at most so long; 0: no budget
	Interval time.Duration // between the beginnings of two rounds; default an hour
}

const (
	defaultInterval = time.Hour

	// lookEvery is how often a waiting run looks for orders and at the clock.
	lookEvery = time.Second

	// shutdownGuess is what a guest takes to shut down, before anybody measured it.
	shutdownGuess = 30 * time.Second
)

// wait returns when it is time for the next round, or for the cutover, which it records, and
// with it whether the VM runs.
func wait(ctx context.Context, r *Run) error {
	w := r.Facts.Warm
	last := w.Rounds[len(w.Rounds)-1]
	next := last.Began.Add(r.Permit.Cutover.interval())
	for {
		order, err := r.m.store.Order(r.Plan.ID)
		if err != nil {
			return err
		}
		switch now := r.opts.Now(); {
		case order == plan.CutOver, r.due(now):
			return r.cutOver(ctx)
		case order != plan.Pause && !now.Before(next):
			return nil
		}
		if err := r.opts.Sleep(ctx, lookEvery); err != nil {
			return err
		}
	}
}

func (r *Run) cutOver(ctx context.Context) error {
	vm, err := r.plannedVM(ctx)
	if err != nil {
		return err
	}
	w := r.Facts.Warm
	w.Cutover, w.WasOn = true, vm.Power == inventory.PoweredOn
	return nil
}

func (c Cutover) interval() time.Duration {
	if c.Interval <= 0 {
		return defaultInterval
	}
	return c.Interval
}

// due reports whether the clock or the budget says cutover.
func (r *Run) due(now time.Time) bool {
	c := r.Permit.Cutover
	return !c.At.IsZero() && !now.Before(c.At) || c.Budget > 0 && len(r.Facts.Warm.Rounds) > 1 && r.outage() <= c.Budget
}

// outage is how long the VM would be out if it were cut over now: what the guest writes
// between two moments, copied at the rate of the last rounds, and what comes around it.
func (r *Run) outage() time.Duration {
	rounds := r.Facts.Warm.Rounds
	if len(rounds) == 0 {
		return 0
	}
	last := rounds[len(rounds)-1]
	copying := last.Took
	if len(rounds) > 1 {
		// As much is written in a second as was between the last two moments.
		apart := last.Began.Sub(rounds[len(rounds)-2].Began)
		if apart > 0 {
			copying = time.Duration(float64(last.Took) * min(float64(last.Took)/float64(apart), 1))
		}
	}
	return shutdownGuess + copying
}
