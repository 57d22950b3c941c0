package fleet

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/fleetdb"
)

// A Control gives commands to plans and VMs. It requires the fleet database and no Node.
type Control struct{ Database *fleetdb.Database }

// CommandPlan gives a command to a plan. Resume and retry also permit logins to its source again, run a
// failed hook again, and list VMs that could not be listed.
func (c Control) CommandPlan(ctx context.Context, plan string, o fleetdb.Command) error {
	unblocked, err := c.clearFailure(ctx, plan, o)
	if err != nil {
		return err
	}
	err = c.Database.Plans.SetCommand(ctx, plan, o)
	if unblocked && fault.Is(err, fault.Conflict) {
		return nil // the command affects no VM that starts again, but the plan continues
	}
	return err
}

// CommandVM gives a command to a VM. Resume and retry also permit logins to its source again.
func (c Control) CommandVM(ctx context.Context, k fleetdb.Key, o fleetdb.Command) error {
	v, err := c.Database.VMs.Get(ctx, k)
	if err != nil {
		return err
	}
	return errors.Join(c.Database.VMs.SetCommand(ctx, k, o), c.forgiveLogins(ctx, o, v.Source))
}

// clearFailure removes what makes a plan wait for resume or retry: refused logins, failed hooks and the
// plan's failure. It reports whether it removed the failure of a plan that has not ended.
func (c Control) clearFailure(ctx context.Context, plan string, o fleetdb.Command) (bool, error) {
	if o != fleetdb.GoOn && o != fleetdb.Retry {
		return false, nil
	}
	p, err := c.Database.Plans.Get(ctx, plan)
	if err != nil || p.State.IsFinal() && o != fleetdb.Retry {
		return false, err
	}
	source, _ := sourceAndWeight(p.Text)
	if err := c.forgiveLogins(ctx, o, source); err != nil {
		return false, err
	}
	if p.Failure == nil {
		return false, nil
	}
	if err := c.forgetHooks(ctx, p); err != nil {
		return false, err
	}
	if p.State.IsFinal() || p.Command.Undoes() && o == fleetdb.Retry { // the order to retry it removes the failure
		return false, nil
	}
	return true, c.Database.Plans.SetState(ctx, plan, stateWithoutFailure(p), nil)
}

// forgetHooks removes the records of hooks that failed or were interrupted, so that they run again.
func (c Control) forgetHooks(ctx context.Context, p fleetdb.Plan) error {
	for _, id := range []string{hookID(p, preHook), hookID(p, postHook)} {
		text, err := c.Database.Records.Get(ctx, planHookKind, id)
		if err != nil {
			return err
		}
		var run hookRun
		if len(text) == 0 || json.Unmarshal(text, &run) == nil && run.hasSucceeded() {
			continue
		}
		if err := c.Database.Records.Drop(ctx, planHookKind, id); err != nil {
			return err
		}
	}
	return nil
}

// forgiveLogins permits logins to a source and its hosts again if the command is resume or retry.
func (c Control) forgiveLogins(ctx context.Context, o fleetdb.Command, source string) error {
	if o != fleetdb.GoOn && o != fleetdb.Retry || source == "" {
		return nil
	}
	return login.DropRefusals(ctx, c.Database, source)
}
