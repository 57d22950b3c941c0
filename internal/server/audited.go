package server

import (
	"context"

	"github.com/decamp/decamp/internal/fleetdb"
)

// Audited is the Control for commands on this machine. It records changes in the audit trail before
// they are made, as a server does for requests. If that fails, the change is not made.
type Audited struct {
	Local
	User      string                                // user of this machine
	LimitText func(name string, units int64) string // formats the value of a limit for the audit trail
}

var _ Control = Audited{}

// recordChange records a change, calls do, and records its error if it fails. If the first record
// fails, do is not called.
func (c Audited) recordChange(ctx context.Context, what, on string, do func() error) error {
	e := fleetdb.Entry{User: c.User, Role: string(Admin), From: "local", Action: what, On: on}
	if err := c.Database.Audit.Add(ctx, e); err != nil {
		return err
	}
	err := do()
	if err != nil {
		e.Err = err.Error()
		_ = c.Database.Audit.Add(ctx, e) // the attempt is on record
	}
	return err
}

// Submit is part of Control.
func (c Audited) Submit(ctx context.Context, s Submission) (p fleetdb.Plan, err error) {
	err = c.recordChange(ctx, "submit plan", s.Folder, func() error { p, err = c.Local.Submit(ctx, s); return err })
	return p, err
}

// DropPlan is part of Control.
func (c Audited) DropPlan(ctx context.Context, name string) error {
	return c.recordChange(ctx, "drop a plan", name, func() error { return c.Local.DropPlan(ctx, name) })
}

// CommandPlan is part of Control.
func (c Audited) CommandPlan(ctx context.Context, name string, o fleetdb.Command) error {
	return c.recordChange(ctx, "command "+o.Word(), name, func() error { return c.Local.CommandPlan(ctx, name, o) })
}

// CommandVM is part of Control.
func (c Audited) CommandVM(ctx context.Context, k fleetdb.Key, o fleetdb.Command) error {
	return c.recordChange(ctx, "command "+o.Word(), k.String(), func() error { return c.Local.CommandVM(ctx, k, o) })
}

// Rehearse is part of Control.
func (c Audited) Rehearse(ctx context.Context, k fleetdb.Key, ask fleetdb.Rehearsal) error {
	return c.recordChange(ctx, "rehearse", k.String(), func() error { return c.Local.Rehearse(ctx, k, ask) })
}

// TakeBack is part of Control.
func (c Audited) TakeBack(ctx context.Context, k fleetdb.Key, rehearsal string) error {
	return c.recordChange(ctx, "take back a rehearsal", k.String(), func() error { return c.Local.TakeBack(ctx, k, rehearsal) })
}

// SetLimit is part of Control.
func (c Audited) SetLimit(ctx context.Context, name string, units int64) error {
	return c.recordChange(ctx, "set limit", name+" "+c.LimitText(name, units), func() error { return c.Local.SetLimit(ctx, name, units) })
}
