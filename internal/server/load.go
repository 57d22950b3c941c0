package server

import (
	"context"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// Load is what limits a running plan, with remedies.
type Load struct {
	Plan   string           `json:"plan"`     // name of the plan
	Moving int              `json:"vms"`      // number of VMs that transfer data
	Rate   int64            `json:"rate"`     // bytes/s of all transfers
	Busy   bottleneck.Busy  `json:"busy"`     // busy part of each component, 0 to 1
	Limit  bottleneck.Limit `json:"limit"`    // component that limits the plan
	Do     []string         `json:"remedies"` // remedies for Limit, the cheapest first
}

// MeasureLoad returns the recent load of a plan's transfers. It returns fault.Conflict if no transfer
// runs.
func MeasureLoad(ctx context.Context, c Control, name string) (r Load, err error) {
	if _, err := c.Plan(ctx, name); err != nil {
		return r, err
	}
	progress, err := c.Progress(ctx, name)
	if err != nil {
		return r, err
	}
	r = Load{Plan: name, Rate: fleetdb.RateOf(progress, name), Busy: fleetdb.BusyOf(progress)}
	for _, p := range progress {
		if p.Rate > 0 {
			r.Moving++
		}
	}
	if r.Limit = r.Busy.Limit(); r.Limit.What == "" {
		return r, fault.New(fault.Conflict, "plan %s has no running transfer", name).
			WithHint("see the state of its VMs: decamp status %s", fault.Quote(name))
	}
	r.Do = r.Limit.Remedies()
	return r, nil
}
