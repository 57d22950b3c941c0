package migrate

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
)

// deliverEarly has a target that has more to do with the images begin with it, after a round that was
// proven: in the outage only what the last round changed is left to be done. That it fails is told, and
// no reason to stop: after the next round it is tried again, and in the outage by commit, which says why
// then.
func (r *Run) deliverEarly(ctx context.Context) error {
	early, ok := r.Rig.Target.(targets.Preparer)
	if !ok {
		return nil
	}
	def := r.definition()
	def.Progress = nil // it is not what the run waits for
	began := r.opts.Now()
	err := early.Prepare(ctx, def)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		rounds := r.Facts.Warm.Rounds
		rounds[len(rounds)-1].Delivered = r.opts.Now().Sub(began)
		r.opts.Log.Info("delivered early", "run", r.Plan.ID)
		return nil
	}
	r.opts.Log.Warn("not delivered early", "run", r.Plan.ID, "err", err)
	r.tell(plan.Event{Kind: plan.Warned, Warning: &inventory.Warning{
		Code:   "early-delivery",
		Text:   fmt.Sprintf("what is copied could not be delivered before the outage (%v): it is tried again after the next round, else the outage waits for it", err),
		Remedy: fault.HintOf(err),
	}})
	return nil
}
