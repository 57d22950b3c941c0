package server

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/sleep"
)

// Control is what operators can do with a fleet and read about it. Its methods may be called
// concurrently. Their errors are faults with remedies.
type Control interface {
	// Submit checks the text of a plan file and submits it to the fleet. The same text again changes
	// nothing; another text under the same name is fault.Conflict.
	Submit(context.Context, Submission) (fleetdb.Plan, error)
	Plans(context.Context) ([]fleetdb.Plan, error)               // returns all plans without their texts
	Plan(ctx context.Context, name string) (fleetdb.Plan, error) // returns a plan with its text
	DropPlan(ctx context.Context, name string) error             // removes a plan that has ended

	VMs(context.Context, fleetdb.Query) ([]fleetdb.VM, error) // returns the VMs that the query selects
	VM(context.Context, fleetdb.Key) (fleetdb.VM, error)      // returns one VM with its Spec
	// returns the last reports; of all plans if plan is empty
	Progress(ctx context.Context, plan string) ([]fleetdb.Progress, error)

	CommandPlan(ctx context.Context, name string, o fleetdb.Command) error // gives a command to a plan
	CommandVM(context.Context, fleetdb.Key, fleetdb.Command) error         // gives a command to a VM

	// Rehearse requests a boot of a warm VM from its current images; Rehearsals returns the results.
	Rehearse(context.Context, fleetdb.Key, fleetdb.Rehearsal) error
	// returns the requested and the last rehearsal
	Rehearsals(context.Context, fleetdb.Key) ([]fleetdb.Rehearsed, error)
	TakeBack(ctx context.Context, k fleetdb.Key, rehearsal string) error // withdraws the request for a rehearsal

	Limits(context.Context) ([]fleetdb.Limit, error)                                 // returns the limits that operators set
	SetLimit(ctx context.Context, name string, units int64) error                    // sets a limit; negative units remove it
	Workers(context.Context) ([]fleetdb.Worker, error)                               // returns all workers that ever joined
	Drain(ctx context.Context, worker string, on bool) error                         // stops or resumes assignments to a worker
	SchedulerState(context.Context) (state json.RawMessage, at time.Time, err error) // returns the last state of the scheduler
	Notifications(context.Context) ([]fleetdb.NotificationCount, error)              // counts notifications by receiver and state
	// returns entries before that ID, newest first
	Audit(ctx context.Context, before int64, limit int) ([]fleetdb.Entry, error)

	// Follow passes on changes newer than the revision since, and later changes, until ctx ends or tell
	// returns an error. With a negative since it begins with changes from now on.
	Follow(ctx context.Context, since int64, tell func(fleetdb.Changes) error) error
}

// Submission is a plan file with its origin.
type Submission struct {
	Text   string // text of the plan file
	Folder string // base of its relative paths
	By     string // user who submits it
	Role   Role   // role of By, which determines the plan's permissions
}

// PlanError is the error for the text of a plan: all findings in it.
type PlanError struct {
	Findings planfile.Findings // findings with their lines
	Err      error             // errors of the findings
}

// Error returns the text of Err.
func (m *PlanError) Error() string { return m.Err.Error() }

// Unwrap returns Err, so that its kind and remedy are found.
func (m *PlanError) Unwrap() error { return m.Err }

// Local is the Control of an open fleet database.
type Local struct{ Database *fleetdb.Database }

var _ Control = Local{}

// Plans implements Control.
func (l Local) Plans(ctx context.Context) ([]fleetdb.Plan, error) { return l.Database.Plans.List(ctx) }

// Plan implements Control.
func (l Local) Plan(ctx context.Context, name string) (fleetdb.Plan, error) {
	return l.Database.Plans.Get(ctx, name)
}

// DropPlan implements Control.
func (l Local) DropPlan(ctx context.Context, name string) error {
	return l.Database.Plans.Drop(ctx, name)
}

// VMs implements Control.
func (l Local) VMs(ctx context.Context, q fleetdb.Query) ([]fleetdb.VM, error) {
	return l.Database.VMs.List(ctx, q)
}

// VM implements Control.
func (l Local) VM(ctx context.Context, k fleetdb.Key) (fleetdb.VM, error) {
	return l.Database.VMs.Get(ctx, k)
}

// Progress implements Control.
func (l Local) Progress(ctx context.Context, plan string) ([]fleetdb.Progress, error) {
	return l.Database.Progress.List(ctx, plan)
}

// Rehearse implements Control.
func (l Local) Rehearse(ctx context.Context, k fleetdb.Key, r fleetdb.Rehearsal) error {
	return l.Database.Rehearsals.Request(ctx, k, r)
}

// Rehearsals implements Control.
func (l Local) Rehearsals(ctx context.Context, k fleetdb.Key) ([]fleetdb.Rehearsed, error) {
	return l.Database.Rehearsals.List(ctx, k)
}

// TakeBack implements Control.
func (l Local) TakeBack(ctx context.Context, k fleetdb.Key, rehearsal string) error {
	return l.Database.Rehearsals.TakeBack(ctx, k, rehearsal)
}

// Limits implements Control.
func (l Local) Limits(ctx context.Context) ([]fleetdb.Limit, error) {
	return l.Database.Limits.List(ctx)
}

// Workers implements Control.
func (l Local) Workers(ctx context.Context) ([]fleetdb.Worker, error) {
	return l.Database.Workers.List(ctx)
}

// Notifications implements Control.
func (l Local) Notifications(ctx context.Context) ([]fleetdb.NotificationCount, error) {
	return l.Database.Notifications.Counts(ctx)
}

// Drain implements Control.
func (l Local) Drain(ctx context.Context, worker string, on bool) error {
	return l.Database.Workers.Drain(ctx, worker, on)
}

// Audit implements Control.
func (l Local) Audit(ctx context.Context, before int64, limit int) ([]fleetdb.Entry, error) {
	return l.Database.Audit.List(ctx, before, limit)
}

// Submit checks the text and adds the plan. Errors in the text are *PlanError.
func (l Local) Submit(ctx context.Context, s Submission) (fleetdb.Plan, error) {
	f, err := parsePlan(s.Text)
	if err != nil {
		return fleetdb.Plan{}, err
	}
	return l.Database.Plans.Add(ctx, fleetdb.Plan{Name: string(f.Name), Text: s.Text, Folder: s.Folder, By: s.By, Role: string(s.Role)})
}

// CommandPlan implements Control. See fleet.Control.CommandPlan.
func (l Local) CommandPlan(ctx context.Context, name string, o fleetdb.Command) error {
	return fleet.Control{Database: l.Database}.CommandPlan(ctx, name, o)
}

// CommandVM implements Control. See fleet.Control.CommandVM.
func (l Local) CommandVM(ctx context.Context, k fleetdb.Key, o fleetdb.Command) error {
	return fleet.Control{Database: l.Database}.CommandVM(ctx, k, o)
}

// parsePlan parses the text of a plan file. Errors in the text are *PlanError.
func parsePlan(text string) (*planfile.File, error) {
	f, found := planfile.Parse([]byte(text))
	if err := found.Err(); err != nil {
		return nil, &PlanError{found, fault.Wrap(fault.Invalid, err)}
	}
	return f, nil
}

// SchedulerState requests the state from the scheduler, which writes it only on request, and returns the last
// one. If the database is full, the scheduler state contains that error.
func (l Local) SchedulerState(ctx context.Context) (json.RawMessage, time.Time, error) {
	err := l.Database.SchedulerState.Request(ctx)
	switch {
	case fault.Is(err, fault.Full):
		return l.fullDatabaseState(ctx, err)
	case err != nil:
		return nil, time.Time{}, err
	}
	return l.Database.SchedulerState.Read(ctx)
}

// fullDatabaseState returns a scheduler state that shows the lack of room as a Breaker.
func (l Local) fullDatabaseState(ctx context.Context, full error) (json.RawMessage, time.Time, error) {
	now, err := l.Database.Now(ctx)
	if err != nil {
		return nil, now, err
	}
	why := fmt.Sprintf("all work waits: %v; %s", full, fault.HintOf(full))
	raw, err := json.Marshal(admission.Snapshot{At: now, Breakers: []admission.Breaker{{Object: "the fleet's database", Reason: why}}})
	return raw, now, err
}

// SetLimit implements Control. It returns fault.Invalid for a limit that would have no effect.
func (l Local) SetLimit(ctx context.Context, name string, units int64) error {
	if err := checkLimit(name, units); err != nil {
		return err
	}
	return l.Database.Limits.Set(ctx, name, units)
}

// checkLimit returns fault.Invalid for the name of a limit that would have no effect. The removal of
// any limit is accepted.
func checkLimit(name string, units int64) error {
	if units < 0 {
		return nil
	}
	return fleet.CheckLimit(name)
}

// gatherTime is the time in which changes are combined into one event.
const gatherTime = 100 * time.Millisecond

// Follow implements Control. Changes in quick succession are passed on together.
func (l Local) Follow(ctx context.Context, since int64, tell func(fleetdb.Changes) error) error {
	if since < 0 {
		head, err := l.Database.Feed.Newest(ctx)
		if err != nil {
			return err
		}
		since = head
	}
	for {
		changes, err := l.Database.Feed.Changes(ctx, since)
		if err != nil {
			return err
		}
		if changes.Rev > since {
			since = changes.Rev
			if err := tell(changes); err != nil {
				return err
			}
			_ = sleep.For(ctx, gatherTime) // the next check of ctx ends the loop
			continue
		}
		if err := l.Database.Feed.WaitForChange(ctx, since); err != nil {
			return err
		}
	}
}
