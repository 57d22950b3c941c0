package fleet

import (
	"strings"

	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/sched"
)

// setLimit takes in what an operator said of a resource. Rates are not the scheduler's.
func (d *desk) setLimit(l roster.Limit) {
	if l.Units < 0 {
		delete(d.limits, l.Name)
	} else {
		d.limits[l.Name] = l.Units
	}
	d.limitsChanged()
}

// limitsChanged looks all capacities up anew.
func (d *desk) limitsChanged() {
	for name := range d.known {
		d.capacity(name)
	}
}

// capacity has the sched.Scheduler know how much there is of a resource now.
func (d *desk) capacity(name string) {
	units := d.units(name)
	if known, ok := d.known[name]; ok && known == units {
		return
	}
	if err := d.sched.SetCapacity(name, units); err != nil {
		d.Log.Warn("capacity not set", "resource", name, "err", err)
		return
	}
	d.known[name] = units
}

// units is how much there is of a resource: what the fleet's own state says, then operators,
// then plans.
func (d *desk) units(name string) int64 {
	owner, unit, _ := strings.Cut(name, "/")
	kind, of, _ := strings.Cut(owner, ":")
	switch {
	case kind == "source" && unit == "logins":
		if _, refused := d.refusals[of]; refused {
			return 0
		}
		return sched.Unlimited
	case kind == "host" && unit == "trials":
		return d.trials(of)
	}
	wild := kind + ":*/" + unit
	for _, n := range []string{name, wild} {
		if units, ok := d.limits[n]; ok {
			return units
		}
	}
	if kind == "worker" && unit == "vms" {
		return int64(d.workers[of].VMs)
	}
	return d.planned(name, wild)
}

// planned is the least that a plan under way says of a resource.
func (d *desk) planned(name, wild string) int64 {
	least := int64(sched.Unlimited)
	for _, b := range d.plans {
		units, ok := b.caps[name]
		if !ok {
			units, ok = b.caps[wild]
		}
		if ok {
			least = min(least, units)
		}
	}
	return least
}
