package warm

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/internal/workflow"
)

// Request is a rehearsal that is requested from the process that executes a run.
type Request struct {
	State string                           // state directory
	Store *journal.Store                   // store of the run
	ID    journal.ID                       // the run
	Ask   journal.Rehearsal                // the request
	Warn  func(format string, args ...any) // prints a warning
}

// resultInterval is the time between checks for the result.
const resultInterval = 500 * time.Millisecond

// Await requests the boot, calls asked, and waits for the result. If ctx ends, it withdraws the request.
func (r Request) Await(ctx context.Context, asked func()) (report testboot.Report, err error) {
	if err := r.Store.AskRehearsal(r.ID, r.Ask); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, r.Store.TakeBack(r.ID, r.Ask.ID)) }()
	asked()
	process := NewResponse(r.Warn, r.State, r.Store, r.ID)
	for {
		answer, err := r.Store.Rehearsed(r.ID)
		switch {
		case err != nil:
			return report, err
		case answer != nil && answer.ID == r.Ask.ID:
			return trialOf(*answer)
		}
		if err := errors.Join(r.checkDriven(), process.Check()); err != nil {
			return report, err
		}
		if err := sleep.For(ctx, resultInterval); err != nil {
			return report, err
		}
	}
}

// checkDriven returns an error if no process will answer the request.
func (r Request) checkDriven() error {
	run, err := r.Store.Run(r.ID)
	switch {
	case err != nil:
		return err
	case run.State == journal.Open && workflow.InUse(r.State):
		return nil
	}
	if answer, err := r.Store.Rehearsed(r.ID); err == nil && answer != nil && answer.ID == r.Ask.ID {
		return nil // its last words
	}
	return fault.New(fault.Canceled, "the decamp process that executed the run has ended").WithHint("see decamp runs; rehearse it again when the run continues")
}

// trialOf returns the report of a rehearsal, or its failure as an error.
func trialOf(answer journal.Rehearsed) (r testboot.Report, err error) {
	if f := answer.Failure; f != nil {
		return r, fault.New(fault.KindNamed(f.Kind), "%s", f.Text).WithHint("%s", f.Hint)
	}
	err = json.Unmarshal(answer.Report, &r)
	return r, err
}
