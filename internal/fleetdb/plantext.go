package fleetdb

import (
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/units"
)

// StateText returns the state of the plan with its current command, such as paused.
func (p Plan) StateText() string {
	switch {
	case !p.State.IsFinal() && p.Command == Pause:
		return "paused"
	case !p.State.IsFinal() && (p.Command == Cancel || p.Command == Rollback):
		return "canceling"
	}
	return string(p.State)
}

// Total returns the number of all VMs.
func (n Counts) Total() (all int) {
	for _, each := range n {
		all += each
	}
	return all
}

// Running returns the number of VMs that a worker has.
func (n Counts) Running() int { return n[Running] + n[Assigned] }

// Waiting returns the number of VMs that wait for a slot or a worker.
func (n Counts) Waiting() int { return n[Queued] + n[Stranded] }

// RateOf returns the sum of the recent rates of a plan's transfers, in bytes per second.
func RateOf(progress []Progress, plan string) (bytes int64) {
	for _, p := range progress {
		if p.Plan == plan {
			bytes += p.Rate
		}
	}
	return bytes
}

// Err returns the error of a plan that has ended; nil if every VM is published, or was withdrawn.
// withdrawn is the number of canceled VMs that were withdrawn: they end as the user requested.
func (p Plan) Err(withdrawn int) error {
	if p.Failure != nil {
		return fault.New(fault.KindNamed(p.Failure.Kind), "plan %s: %s", p.Name, p.Failure.Text).WithHint("%s", p.Failure.Hint)
	}
	failed, canceled := p.Counts[Failed], p.Counts[Canceled]-withdrawn
	switch {
	case failed > 0:
		return fault.New(fault.Conflict, "plan %s: %d of %s failed", p.Name, failed, units.Count(p.Counts.Total(), "VM")).
			WithHint("see the reasons with decamp status %s; retry them with decamp retry %s", p.Name, p.Name)
	case canceled > 0:
		verb := "were"
		if canceled == 1 {
			verb = "was"
		}
		return fault.New(fault.Canceled, "plan %s: %d of %s %s canceled", p.Name, canceled, units.Count(p.Counts.Total(), "VM"), verb)
	}
	return nil
}
