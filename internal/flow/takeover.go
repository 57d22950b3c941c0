package flow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// fence is the name of the step that is put where the next one of a lost attempt would be recorded.
const fence = "decamp.fence"

// TakeOver continues here a run that is pending at another executor: its current attempt is canceled
// and fenced, so that nothing more of it is recorded, and the next one begins behind its last good
// step. The caller answers for it that the other one may not go on: it is gone, or has lost its claim.
// Its own pending run, and one that failed or was canceled, it starts; one that is done stays done.
func (e *Engine) TakeOver(ctx context.Context, run string) error {
	st, err := e.Status(ctx, run)
	switch {
	case err != nil:
		return err
	case st.State == None:
		return fault.New(fault.NotFound, "run %s does not exist", run)
	case st.State == Pending && !e.own(st):
		err = e.take(ctx, st)
	default:
		err = e.resume(ctx, st)
	}
	if err != nil {
		return fmt.Errorf("take over run %s: %w", run, e.told(err))
	}
	return nil
}

// take makes the next attempt ours. Killed in between, it leaves a canceled attempt, which Start and
// TakeOver continue as well.
func (e *Engine) take(ctx context.Context, st Status) error {
	if err := dbos.CancelWorkflow(e.client(ctx), attemptID(st.Run, st.Attempt)); err != nil {
		return err
	}
	st, err := e.Status(ctx, st.Run) // with what was recorded until then
	if err != nil {
		return err
	}
	return e.resume(ctx, st)
}

// seal fences a canceled attempt of another executor, and returns what is on record of it for good.
func (e *Engine) seal(ctx context.Context, st Status) (Status, error) {
	if e.own(st) || st.State != Canceled {
		return st, nil
	}
	if err := e.fence(ctx, attemptID(st.Run, st.Attempt), st.end); err != nil {
		return st, err
	}
	return e.Status(ctx, st.Run)
}

// fence takes the place of the step that a canceled attempt may be in: a canceled one begins no
// other, but what it is in it would record. If it was faster its result stands, and is continued from.
func (e *Engine) fence(ctx context.Context, id string, step uint) error {
	for {
		_, err := e.pg.Exec(ctx, `INSERT INTO `+schema+`.operation_outputs
			(workflow_uuid, function_id, function_name, started_at_epoch_ms, completed_at_epoch_ms, application_name)
			VALUES ($1, $2, $3, $4, $4, $5) ON CONFLICT (workflow_uuid, function_id) DO NOTHING`,
			id, int(step), fence, time.Now().UnixMilli(), appName)
		if err == nil {
			return nil
		}
		if !lost(err) || !pause(ctx, dialPause) {
			return fmt.Errorf("fence attempt %s: %w", id, err)
		}
	}
}

// fenced reports whether the engine refused a step's result because of a fence.
func fenced(err error) bool {
	var refused *dbos.Error
	return errors.As(err, &refused) && refused.RecordedName == fence ||
		refused != nil && fenced(errors.Unwrap(refused))
}

// takenOver is the error for those who drove an attempt of run that is another executor's now.
func takenOver(run, by string) error {
	return fault.New(fault.Conflict, "run %s was taken over by %s", run, by).
		WithHint("it goes on there: see what that one says")
}
