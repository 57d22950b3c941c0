package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
)

// hooks is the kind of the records of hooks.
const hooks = "plan-hook"

// hookID is the id of such a record. A plan that was dropped and submitted again is another
// one.
func hookID(p roster.Plan, when string) string {
	return fmt.Sprintf("%s/%s/%d", when, p.Name, p.Created.UnixMicro())
}

// The hooks of a plan.
const (
	pre  = "pre"
	post = "post"
)

// A hookRun is what is on record of a hook: before it is begun, and when it ended.
type hookRun struct {
	Began   time.Time       `json:"began"`
	Ended   time.Time       `json:"ended,omitzero"`
	Failure *roster.Failure `json:"failure,omitempty"`
}

// succeeded reports whether the hook ended, and without a failure.
func (h hookRun) succeeded() bool { return !h.Ended.IsZero() && h.Failure == nil }

// prepare admits a plan and runs its first hook, unless the hook ran before. If either fails, no VM
// begins until an operator resumes the plan. A plan that is canceled or rolled back needs neither.
func (d *desk) prepare(ctx context.Context, b *book, p roster.Plan) error {
	if undoes(p.Order) {
		d.hand(ctx, func() {
			b.ready, b.failed = true, false
			d.ordered(b.Order, b)
		})
		return nil
	}
	failure, err := d.admit(ctx, p)
	if failure == nil && err == nil {
		failure, err = d.hook(ctx, p, pre)
	}
	if err != nil {
		return err
	}
	if failure != nil {
		d.hand(ctx, func() {
			b.failed = true
			b.Failure = failure // resume may clear it before this process reads it
		})
		return d.Roster.Plans.SetState(ctx, p.Name, p.State, failure)
	}
	d.hand(ctx, func() {
		b.ready = true
		d.ordered(b.Order, b)
	})
	return nil
}

// admit returns why the plan may not be carried out; nil if it may.
func (d *desk) admit(ctx context.Context, p roster.Plan) (*roster.Failure, error) {
	err := d.insist(ctx, func() error { return d.Mover.Admit(ctx, p) })
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return failureOf(err), nil
	}
	return nil, nil
}

// end runs the hook after the last VM, if nobody did, and ends the plan. Without the hook before the
// first VM there is nothing for that one to follow.
func (d *desk) end(ctx context.Context, p roster.Plan) error {
	before, began, err := d.hookOnRecord(ctx, hookID(p, pre))
	if err != nil {
		return err
	}
	var failure *roster.Failure
	if began && before.succeeded() {
		if failure, err = d.hook(ctx, p, post); err != nil {
			return err
		}
	}
	if p.Failure != nil {
		failure = p.Failure
	}
	return d.Roster.Plans.SetState(ctx, p.Name, roster.PlanEnded, failure)
}

// hook runs a hook that nobody began, and returns why it failed, or had failed. One that was
// begun and has no end was cut off with its process: it may have done anything, so it is not
// begun again by itself.
func (d *desk) hook(ctx context.Context, p roster.Plan, when string) (*roster.Failure, error) {
	id := hookID(p, when)
	run, began, err := d.hookOnRecord(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case began && run.Ended.IsZero():
		cut := fault.New(fault.Conflict, "the plan's %s hook was begun %s and cut off with its process", when, run.Began.UTC().Format(time.DateTime)).
			WithHint("look what it did, then decamp resume %s begins it again", fault.Quote(p.Name))
		return failureOf(cut), nil
	case began:
		return run.Failure, nil
	}
	run.Began = d.Now()
	if err := d.recordHook(ctx, id, run); err != nil {
		return nil, err
	}
	err = d.Mover.Hook(ctx, p, when)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	run.Ended = d.Now()
	if err != nil {
		run.Failure = failureOf(err)
		run.Failure.Text = "the plan's " + when + " hook: " + run.Failure.Text
	}
	return run.Failure, d.recordHook(ctx, id, run)
}

func (d *desk) hookOnRecord(ctx context.Context, id string) (run hookRun, began bool, err error) {
	records, err := d.Roster.Records.List(ctx, hooks)
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

func (d *desk) recordHook(ctx context.Context, id string, run hookRun) error {
	text, err := json.Marshal(run)
	if err != nil {
		return err
	}
	return d.insist(ctx, func() error { return d.Roster.Records.Put(ctx, hooks, id, text) })
}
