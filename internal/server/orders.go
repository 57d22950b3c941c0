package server

import (
	"context"

	"github.com/decamp/decamp/internal/roster"
)

// orders gives plans and VMs the orders of API and page, and records them.
type orders struct {
	control Control
	trail   *auditTrail
}

func (o *orders) toPlan(ctx context.Context, plan, word string) error {
	return o.trail.change(ctx, word, plan, func() error { return o.control.OrderPlan(ctx, plan, roster.OrderOf(word)) })
}

func (o *orders) toVM(ctx context.Context, k roster.Key, word string) error {
	if who := whoIn(ctx); roster.OrderOf(word) == roster.Withdraw && !who.Role.May(Admin) {
		err := who.refuse(Admin, "withdraw a published VM")
		o.trail.noteRefusal(ctx, who, word, k.String(), err)
		return err
	}
	return o.trail.change(ctx, word, k.Plan+"/"+k.VM, func() error { return o.control.OrderVM(ctx, k, roster.OrderOf(word)) })
}
