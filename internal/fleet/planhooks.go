package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// planHookKind is the kind of the records of plan hooks.
const planHookKind = "plan-hook"

// hookID returns the id of the record of a hook. It contains the time of submission, so a plan that was
// dropped and submitted again has another one.
func hookID(p fleetdb.Plan, when string) string {
	return fmt.Sprintf("%s/%s/%d", when, p.Name, p.Created.UnixMicro())
}

// The hooks of a plan.
const (
	preHook  = "pre"  // runs before the first VM
	postHook = "post" // runs after the last VM
)

// A hookRun is the record of a hook. It is written before the hook begins and when it has ended.
type hookRun struct {
	Began   time.Time        `json:"began"`             // when the hook began, by the clock of the scheduler's process
	Ended   time.Time        `json:"ended,omitzero"`    // when it ended; zero if it is running or was interrupted
	Failure *fleetdb.Failure `json:"failure,omitempty"` // why it failed; nil if it succeeded or has not ended
}

// hasSucceeded reports whether the hook ended without a failure.
func (h hookRun) hasSucceeded() bool { return !h.Ended.IsZero() && h.Failure == nil }

// preparePlan admits a plan and runs its first hook, unless the hook ran before. If either fails, no VM
// begins until an operator resumes the plan.
func (r *planRunner) preparePlan(ctx context.Context, p *activePlan, row fleetdb.Plan) error {
	failure, err := r.admitPlan(ctx, row)
	if failure == nil && err == nil {
		failure, err = r.runHook(ctx, row, preHook)
	}
	if err != nil {
		return err
	}
	if failure != nil {
		r.callOwner(ctx, func() {
			p.failed = true
			p.Failure = failure // an operator may resume the plan before this process reads its row
			r.submitPlan(p)
		})
		return r.Database.Plans.SetState(ctx, row.Name, row.State, failure)
	}
	r.callOwner(ctx, func() {
		p.ready = true
		r.submitPlan(p)
	})
	return nil
}

// admitPlan returns why the plan may not be executed; nil if it may. The error is ctx's.
func (r *planRunner) admitPlan(ctx context.Context, row fleetdb.Plan) (*fleetdb.Failure, error) {
	err := r.retryWhileAway(ctx, func() error { return r.Mover.Admit(ctx, row) })
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return failureOf(err), nil
	}
	return nil, nil
}

// endPlan runs the hook after the last VM, unless it ran before, and ends the plan. The hook does not
// run if the hook before the first VM did not succeed. A plan that an operator retries meanwhile does
// not end.
func (r *planRunner) endPlan(ctx context.Context, row fleetdb.Plan) error {
	first, began, err := r.readHook(ctx, hookID(row, preHook))
	if err != nil {
		return err
	}
	var failure *fleetdb.Failure
	if began && first.hasSucceeded() {
		if failure, err = r.runHook(ctx, row, postHook); err != nil {
			return err
		}
	}
	if row.Failure != nil {
		failure = row.Failure
	}
	if err := r.Database.Plans.Advance(ctx, row, fleetdb.PlanEnded, failure); err != nil || r.PlanEnded == nil {
		return err
	}
	if ended, err := r.Database.Plans.Get(ctx, row.Name); err == nil && ended.State.IsFinal() {
		r.PlanEnded(ended)
	}
	return nil
}

// runHook runs a hook that has not begun, and returns why it failed, now or before. A hook that began
// and has no end was interrupted with its process: it may have had any effect, so it does not run again
// without a command.
func (r *planRunner) runHook(ctx context.Context, row fleetdb.Plan, when string) (*fleetdb.Failure, error) {
	id := hookID(row, when)
	run, began, err := r.readHook(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case began && run.Ended.IsZero():
		cut := fault.New(fault.Conflict, "the plan's %s hook started %s and was interrupted with its process", when, run.Began.UTC().Format(time.DateTime)).
			WithHint("check its effects, then start it again: decamp resume %s", fault.Quote(row.Name))
		return failureOf(cut), nil
	case began:
		return run.Failure, nil
	}
	run.Began = r.Now()
	if err := r.recordHook(ctx, id, run); err != nil {
		return nil, err
	}
	err = r.Mover.Hook(ctx, row, when)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	run.Ended = r.Now()
	if err != nil {
		run.Failure = failureOf(err)
		run.Failure.Text = "the plan's " + when + " hook: " + run.Failure.Text
	}
	return run.Failure, r.recordHook(ctx, id, run)
}

// readHook returns the record of a hook. It returns false if none exists.
func (r *planRunner) readHook(ctx context.Context, id string) (run hookRun, began bool, err error) {
	records, err := r.Database.Records.List(ctx, planHookKind)
	if err != nil {
		return run, false, err
	}
	for _, rec := range records {
		if rec.ID == id {
			if err := json.Unmarshal(rec.Doc, &run); err != nil {
				return run, false, fault.New(fault.Corrupt, "the record of hook %s: %w", id, err)
			}
			return run, true, nil
		}
	}
	return run, false, nil
}

// recordHook writes the record of a hook. It retries while the database is away.
func (r *planRunner) recordHook(ctx context.Context, id string, run hookRun) error {
	text, err := json.Marshal(run)
	if err != nil {
		return err
	}
	return r.retryWhileAway(ctx, func() error { return r.Database.Records.Put(ctx, planHookKind, id, text) })
}
