package mover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fleet/simulate"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/planfile"
)

// AddPlan adds the VMs and the limits of a plan to s. It logs in to the source of the plan, and changes
// nothing there.
func AddPlan(ctx context.Context, a *assemble.Assembler, l assemble.Login, p fleetdb.Plan, s *simulate.Config) (err error) {
	m := New(a)
	source, err := m.KnownSource(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	if err := source.LogIn(ctx, l); err != nil {
		return err
	}
	s.VMs, s.Needs = nil, m.Needs
	err = source.List(ctx, func(some []fleetdb.VM) error { s.VMs = append(s.VMs, some...); return nil })
	if err != nil {
		return err
	}
	s.Capacities, err = m.Capacities(ctx, p)
	return err
}

// NewSimulation returns a simulation of the hardware in h, with the VMs of h.
func NewSimulation(h *planfile.Hardware) simulate.Config {
	return simulate.Config{
		VMs: simulatedVMs(h.VMs), Capacities: DefaultCapacities(), Needs: New(nil).Needs,
		Rates: h.Rates(1), Crowds: map[string]float64{"link:all/rate": float64(h.Crowd)}, Hold: time.Duration(h.Hold),
	}
}

// simulatedVMs returns rows for groups of VMs, as List would report them.
func simulatedVMs(all []planfile.Group) (vms []fleetdb.VM) {
	for _, g := range all {
		for i := range g.Count {
			n := len(vms) + 1
			host := fmt.Sprintf("esx%d", i%g.Hosts+1)
			vms = append(vms, fleetdb.VM{
				Key: fleetdb.Key{Plan: "simulated", VM: fmt.Sprintf("vm-%d", n)}, Name: fmt.Sprintf("vm%d", n),
				Host: host, Datastore: "datastore1", Source: "vc", To: []string{"dir:/"}, Disks: g.Disks, Bytes: int64(g.Allocated),
			})
		}
	}
	return vms
}

// Simulated is the result of a simulation with the bounds of its duration.
type Simulated struct {
	simulate.Result
	Least time.Duration `json:"least,omitempty"` // duration with all rates at their upper bounds in the file
	// duration with all rates at their lower bounds in the file; 0 if the rates have no uncertainty
	Most time.Duration `json:"most,omitempty"`
	// bytes per second of each transfer that the user did not set; 0 if the rates are set
	AssumedRate int64 `json:"assumedRate,omitempty"`
}

// Simulate runs the simulation s. If the rates of h are uncertain, it also runs s with higher and with
// lower rates.
func Simulate(ctx context.Context, s simulate.Config, h *planfile.Hardware) (done Simulated, err error) {
	if done.Result, err = simulate.Run(ctx, s); err != nil || h.Uncertain == 0 {
		return done, err
	}
	for factor, bound := range map[float64]*time.Duration{1 + float64(h.Uncertain): &done.Least, 1 - float64(h.Uncertain): &done.Most} {
		s.Rates = h.Rates(factor)
		other, err := simulate.Run(ctx, s)
		if err != nil {
			return done, err
		}
		*bound = other.Makespan
	}
	return done, nil
}
