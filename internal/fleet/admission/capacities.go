package admission

import (
	"log/slog"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched"
)

// capacities are the capacities of the resources that VMs need, as they are set in the sched.Scheduler.
type capacities struct {
	sched  *sched.Scheduler            // scheduler that the capacities are set in
	log    *slog.Logger                // receives failures to set a capacity
	units  func(resource string) int64 // returns the required capacity of a resource
	known  map[string]int64            // capacity that is set, by resource
	limits map[string]int64            // operators' limits by resource; "host:*/vms" applies to every host without one
}

// newCapacities returns capacities without resources.
func newCapacities(s *sched.Scheduler, log *slog.Logger, units func(string) int64) *capacities {
	return &capacities{sched: s, log: log, units: units, known: map[string]int64{}, limits: map[string]int64{}}
}

// updateCapacity sets the capacity of a resource to the required one, if it differs.
func (c *capacities) updateCapacity(resource string) {
	units := c.units(resource)
	if known, ok := c.known[resource]; ok && known == units {
		return
	}
	if err := c.sched.SetCapacity(resource, units); err != nil {
		c.log.Warn("capacity not set", "resource", resource, "err", err)
		return
	}
	c.known[resource] = units
}

// updateAll updates all known resources, after a change of limits or plans.
func (c *capacities) updateAll() {
	for resource := range c.known {
		c.updateCapacity(resource)
	}
}

// ensureCapacity sets the capacity of a resource that is needed for the first time.
func (c *capacities) ensureCapacity(resource string) {
	if _, known := c.known[resource]; !known {
		c.updateCapacity(resource)
	}
}

// SetLimit sets or, with negative units, removes an operator's limit. Limits of rates have no effect here.
func (c *Controller) SetLimit(l fleetdb.Limit) {
	if l.Units < 0 {
		delete(c.capacities.limits, l.Name)
	} else {
		c.capacities.limits[l.Name] = l.Units
	}
	c.capacities.updateAll()
}

// requiredUnits returns the capacity that a resource must have: by the refused logins and the health of
// hosts, else by the operators' limits, else by the plans' limits.
func (c *Controller) requiredUnits(resource string) int64 {
	owner, unit, _ := strings.Cut(resource, "/")
	kind, name, _ := strings.Cut(owner, ":")
	switch {
	case kind == "source" && unit == "logins":
		if _, refused := c.refusals[name]; refused {
			return 0
		}
		return sched.Unlimited
	case kind == "host" && unit == "trials":
		return c.trialUnits(name)
	}
	wildcard := kind + ":*/" + unit
	for _, n := range []string{resource, wildcard} {
		if units, ok := c.capacities.limits[n]; ok {
			return units
		}
	}
	if kind == "worker" && unit == "vms" {
		return int64(c.workers.byName[name].VMs)
	}
	return c.plannedUnits(resource, wildcard)
}

// plannedUnits returns the lowest limit that a plan sets for a resource; Unlimited if no plan limits
// it.
func (c *Controller) plannedUnits(resource, wildcard string) int64 {
	least := int64(sched.Unlimited)
	for _, p := range c.plans {
		units, ok := p.Capacities[resource]
		if !ok {
			units, ok = p.Capacities[wildcard]
		}
		if ok {
			least = min(least, units)
		}
	}
	return least
}

// trialUnits returns how many VMs may be active at a host as far as its health allows.
func (c *Controller) trialUnits(host string) int64 {
	if c.refusals.hasHost(host) {
		return 0
	}
	return c.hosts.allowedVMs(host, func(tried time.Time) (n int64) {
		for _, v := range c.vms {
			if v.Host == host && v.Granted && (tried.IsZero() || v.Since.Before(tried)) {
				n++
			}
		}
		return n
	})
}

// workerSlots returns the resource that the VMs of a worker share.
func workerSlots(worker string) string { return "worker:" + worker + "/vms" }

// hostTrials returns the resource that a host's health limits.
func hostTrials(host string) string { return "host:" + host + "/trials" }

// sourceLogins returns the resource that a refused login at a source closes.
func sourceLogins(source string) string { return "source:" + source + "/logins" }

// isInternal reports whether a resource cannot be named by a limit.
func isInternal(resource string) bool {
	return strings.HasSuffix(resource, "/trials") || strings.HasSuffix(resource, "/logins")
}
