package main

import (
	"context"

	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/server"
)

// audited is the roster as commands on this machine use it: what they change is noted before it
// is done, as a server notes what it is asked for. Without that it is not done.
type audited struct {
	server.Local
	who string
}

var _ server.Control = audited{}

func (c audited) note(ctx context.Context, what, on string, do func() error) error {
	e := roster.Entry{Who: c.who, Role: string(server.Admin), From: "local", What: what, On: on}
	if err := c.Roster.Audit.Add(ctx, e); err != nil {
		return err
	}
	err := do()
	if err != nil {
		e.Err = err.Error()
		_ = c.Roster.Audit.Add(ctx, e) // the attempt is on record
	}
	return err
}

func (c audited) Submit(ctx context.Context, s server.Submission) (p roster.Plan, err error) {
	err = c.note(ctx, "submit plan", s.Folder, func() error { p, err = c.Local.Submit(ctx, s); return err })
	return p, err
}

func (c audited) OrderPlan(ctx context.Context, name string, o roster.Order) error {
	return c.note(ctx, "order "+orderName(o), name, func() error { return c.Local.OrderPlan(ctx, name, o) })
}

func (c audited) OrderVM(ctx context.Context, k roster.Key, o roster.Order) error {
	return c.note(ctx, "order "+orderName(o), k.String(), func() error { return c.Local.OrderVM(ctx, k, o) })
}

func (c audited) Rehearse(ctx context.Context, k roster.Key, ask roster.Rehearsal) error {
	return c.note(ctx, "rehearse", k.String(), func() error { return c.Local.Rehearse(ctx, k, ask) })
}

func (c audited) TakeBack(ctx context.Context, k roster.Key, rehearsal string) error {
	return c.note(ctx, "take back a rehearsal", k.String(), func() error { return c.Local.TakeBack(ctx, k, rehearsal) })
}

func (c audited) SetLimit(ctx context.Context, name string, units int64) error {
	return c.note(ctx, "set limit", name+" "+limitWords(name, units), func() error { return c.Local.SetLimit(ctx, name, units) })
}

// orderName is an order's word; the one to go on has none in the roster.
func orderName(o roster.Order) string {
	if o == roster.GoOn {
		return "resume"
	}
	return string(o)
}
