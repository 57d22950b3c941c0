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

// Control is what operators do with a fleet, and see of it. Its methods may be called
// concurrently; their errors are faults with remedies.
type Control interface {
	// Submit checks the text of a plan file and has the fleet carry it out. The same text
	// again changes nothing; another one under the same name is fault.Conflict.
	Submit(context.Context, Submission) (fleetdb.Plan, error)
	Plans(context.Context) ([]fleetdb.Plan, error)
	Plan(ctx context.Context, name string) (fleetdb.Plan, error)
	DropPlan(ctx context.Context, name string) error // an ended one

	VMs(context.Context, fleetdb.Query) ([]fleetdb.VM, error)
	VM(context.Context, fleetdb.Key) (fleetdb.VM, error)
	Progress(ctx context.Context, plan string) ([]fleetdb.Progress, error) // of all plans if plan is empty

	OrderPlan(ctx context.Context, name string, o fleetdb.Order) error
	OrderVM(context.Context, fleetdb.Key, fleetdb.Order) error

	// Rehearse requests a boot of a warm VM from its current images; Rehearsals returns the results.
	Rehearse(context.Context, fleetdb.Key, fleetdb.Rehearsal) error
	Rehearsals(context.Context, fleetdb.Key) ([]fleetdb.Rehearsed, error)
	TakeBack(ctx context.Context, k fleetdb.Key, rehearsal string) error

	Limits(context.Context) ([]fleetdb.Limit, error)
	SetLimit(ctx context.Context, name string, units int64) error
	Workers(context.Context) ([]fleetdb.Worker, error)
	Drain(ctx context.Context, worker string, on bool) error
	Board(context.Context) (board json.RawMessage, at time.Time, err error)
	Audit(ctx context.Context, before int64, limit int) ([]fleetdb.Entry, error)

	// Follow passes on changes newer than the revision since, and later changes, until ctx ends or tell
	// returns an error. With a negative since it begins with changes from now on.
	Follow(ctx context.Context, since int64, tell func(fleetdb.Changes) error) error
}

// Submission is a plan file and where it comes from.
type Submission struct {
	Text   string
	Folder string // base of its relative paths
	By     string // user who submits it
	Role   Role   // role of By, which determines the plan's permissions
}

// Mistakes is all that is wrong with the text of a plan.
type Mistakes struct {
	Findings planfile.Findings
	Err      error // errors of the findings
}

func (m *Mistakes) Error() string { return m.Err.Error() }
func (m *Mistakes) Unwrap() error { return m.Err }

// Local is the Control of an open fleet database.
type Local struct{ Roster *fleetdb.Roster }

var _ Control = Local{}

func (l Local) Plans(ctx context.Context) ([]fleetdb.Plan, error) { return l.Roster.Plans.List(ctx) }

func (l Local) Plan(ctx context.Context, name string) (fleetdb.Plan, error) {
	return l.Roster.Plans.Get(ctx, name)
}

func (l Local) DropPlan(ctx context.Context, name string) error {
	return l.Roster.Plans.Drop(ctx, name)
}

func (l Local) VMs(ctx context.Context, q fleetdb.Query) ([]fleetdb.VM, error) {
	return l.Roster.VMs.List(ctx, q)
}

func (l Local) VM(ctx context.Context, k fleetdb.Key) (fleetdb.VM, error) {
	return l.Roster.VMs.Get(ctx, k)
}

func (l Local) Progress(ctx context.Context, plan string) ([]fleetdb.Progress, error) {
	return l.Roster.Progress.List(ctx, plan)
}

func (l Local) Rehearse(ctx context.Context, k fleetdb.Key, r fleetdb.Rehearsal) error {
	return l.Roster.Rehearsals.Request(ctx, k, r)
}

func (l Local) Rehearsals(ctx context.Context, k fleetdb.Key) ([]fleetdb.Rehearsed, error) {
	return l.Roster.Rehearsals.List(ctx, k)
}

func (l Local) TakeBack(ctx context.Context, k fleetdb.Key, rehearsal string) error {
	return l.Roster.Rehearsals.TakeBack(ctx, k, rehearsal)
}

func (l Local) Limits(ctx context.Context) ([]fleetdb.Limit, error) { return l.Roster.Limits.List(ctx) }

func (l Local) Workers(ctx context.Context) ([]fleetdb.Worker, error) {
	return l.Roster.Workers.List(ctx)
}

func (l Local) Drain(ctx context.Context, worker string, on bool) error {
	return l.Roster.Workers.Drain(ctx, worker, on)
}

func (l Local) Audit(ctx context.Context, before int64, limit int) ([]fleetdb.Entry, error) {
	return l.Roster.Audit.List(ctx, before, limit)
}

// Submit checks the text and adds the plan. What is wrong with the text is a *Mistakes.
func (l Local) Submit(ctx context.Context, s Submission) (fleetdb.Plan, error) {
	f, err := parsePlan(s.Text)
	if err != nil {
		return fleetdb.Plan{}, err
	}
	return l.Roster.Plans.Add(ctx, fleetdb.Plan{Name: string(f.Name), Text: s.Text, Folder: s.Folder, By: s.By, Role: string(s.Role)})
}

// OrderPlan gives an order to a plan, and takes away what kept it from being carried out.
func (l Local) OrderPlan(ctx context.Context, name string, o fleetdb.Order) error {
	return fleet.Control{Roster: l.Roster}.OrderPlan(ctx, name, o)
}

// OrderVM gives an order to a VM, and takes away what kept it from being carried out.
func (l Local) OrderVM(ctx context.Context, k fleetdb.Key, o fleetdb.Order) error {
	return fleet.Control{Roster: l.Roster}.OrderVM(ctx, k, o)
}

func parsePlan(text string) (*planfile.File, error) {
	f, found := planfile.Parse([]byte(text))
	if err := found.Err(); err != nil {
		return nil, &Mistakes{found, fault.Wrap(fault.Invalid, err)}
	}
	return f, nil
}

// Board requests the board from the scheduler, which writes it only on request, and returns the last
// one. If the database is full, the board contains that error.
func (l Local) Board(ctx context.Context) (json.RawMessage, time.Time, error) {
	err := l.Roster.Board.Request(ctx)
	switch {
	case fault.Is(err, fault.Full):
		return l.fullBoard(ctx, err)
	case err != nil:
		return nil, time.Time{}, err
	}
	return l.Roster.Board.Read(ctx)
}

func (l Local) fullBoard(ctx context.Context, full error) (json.RawMessage, time.Time, error) {
	now, err := l.Roster.Now(ctx)
	if err != nil {
		return nil, now, err
	}
	why := fmt.Sprintf("all waits: %v; %s", full, fault.HintOf(full))
	raw, err := json.Marshal(admission.Snapshot{At: now, Breakers: []admission.Breaker{{Of: "the fleet's database", Sentence: why}}})
	return raw, now, err
}

// SetLimit refuses a limit that nothing would keep.
func (l Local) SetLimit(ctx context.Context, name string, units int64) error {
	if err := checkLimit(name, units); err != nil {
		return err
	}
	return l.Roster.Limits.Set(ctx, name, units)
}

// checkLimit accepts the removal of any existing limit.
func checkLimit(name string, units int64) error {
	if units < 0 {
		return nil
	}
	return fleet.CheckLimit(name)
}

// gatherTime is the time in which changes become one event.
const gatherTime = 100 * time.Millisecond

// Follow reads the fleet database. Changes in quick succession are passed on together.
func (l Local) Follow(ctx context.Context, since int64, tell func(fleetdb.Changes) error) error {
	if since < 0 {
		head, err := newestRevision(ctx, l.Roster.Feed)
		if err != nil {
			return err
		}
		since = head
	}
	for {
		changes, err := l.Roster.Feed.Changes(ctx, since)
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
		if err := l.Roster.Feed.Await(ctx, since); err != nil {
			return err
		}
	}
}

func newestRevision(ctx context.Context, feed *fleetdb.Feed) (rev int64, err error) {
	for {
		changes, err := feed.Changes(ctx, rev)
		if err != nil || changes.Rev <= rev {
			return rev, err
		}
		rev = changes.Rev
	}
}
