package flow

import (
	"context"
	"fmt"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// TakeOver continues here a run that is pending at another executor. It cancels the current attempt,
// of which nothing more is recorded then, and begins the next one behind the last good step. The caller answers for it that the other one may not go on: it is gone, or has lost its claim.
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

// takenOver is the error for those who drove an attempt of run that is another executor's now.
func takenOver(run, by string) error {
	return fault.New(fault.Conflict, "run %s was taken over by %s", run, by).
		WithHint("it goes on there: see what that one says")
}
