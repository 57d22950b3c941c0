package admission

import (
	"maps"

	"github.com/decamp/decamp/internal/fleetdb"
)

// A Plan is the part of an active plan that decides about its VMs.
type Plan struct {
	Name    string          // name of the plan
	Order   fleetdb.Command // command for the whole plan
	Weight  int             // share of resources relative to other plans; 0 is 1
	Ready   bool            // the plan is admitted, and its hook before the first VM has succeeded
	Failure string          // why the plan is not ready; "" if that is not decided

	// Capacities are the limits that the plan sets, by resource. "host:*/vms" is the limit of every host that
	// is not named. If several plans limit a resource, the lowest limit counts.
	Capacities map[string]int64
}

// SetPlan adds or replaces a plan.
func (c *Controller) SetPlan(p Plan) {
	old := c.plans[p.Name]
	c.plans[p.Name] = p
	if p.Weight != old.Weight {
		c.setWeight(p.Name, p.Weight)
	}
	if !maps.Equal(p.Capacities, old.Capacities) {
		c.capacities.updateAll()
	}
	if p.Order == fleetdb.Pause || !p.Ready {
		c.sched.PausePlan(p.Name)
	} else {
		c.sched.ResumePlan(p.Name)
	}
	if old.Order.Undoes() != p.Order.Undoes() && c.started {
		c.submitQueued(func(v fleetdb.VM) bool { return v.Plan == p.Name })
	}
}

// DropPlan removes a plan that has ended.
func (c *Controller) DropPlan(name string) {
	if _, known := c.plans[name]; !known {
		return
	}
	delete(c.plans, name)
	c.sched.ResumePlan(name)
	c.setWeight(name, 1) // or the sched.Scheduler would remember the plan
	c.capacities.updateAll()
}

// setWeight sets the weight of a plan in the sched.Scheduler; values below 1 count as 1.
func (c *Controller) setWeight(plan string, weight int) {
	if err := c.sched.SetPlan(plan, max(weight, 1)); err != nil {
		c.Log.Warn("weight not set", "plan", plan, "err", err)
	}
}

// orderOf returns the effective command for a VM, by its row and its plan.
func (c *Controller) orderOf(v fleetdb.VM) fleetdb.Command {
	return v.Command.Within(c.plans[v.Plan].Order)
}
