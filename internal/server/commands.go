package server

import (
	"context"

	"github.com/decamp/decamp/internal/fleetdb"
)

// orders passes commands of the API and the page to plans and VMs, and records them.
type orders struct {
	control Control     // executes the commands
	trail   *auditTrail // records commands and refusals
}

// commandPlan gives a command to a plan. word is the user's word for it.
func (o *orders) commandPlan(ctx context.Context, plan, word string) error {
	return o.trail.recordChange(ctx, word, plan, func() error { return o.control.CommandPlan(ctx, plan, fleetdb.CommandOf(word)) })
}

// commandVM gives a command to a VM. A withdrawal requires the role Admin.
func (o *orders) commandVM(ctx context.Context, k fleetdb.Key, word string) error {
	if who := whoIn(ctx); fleetdb.CommandOf(word) == fleetdb.Withdraw && !who.Role.May(Admin) {
		err := who.roleError(Admin, "withdraw a published VM")
		o.trail.noteRefusal(ctx, who, word, k.String(), err)
		return err
	}
	return o.trail.recordChange(ctx, word, k.Plan+"/"+k.VM, func() error { return o.control.CommandVM(ctx, k, fleetdb.CommandOf(word)) })
}
