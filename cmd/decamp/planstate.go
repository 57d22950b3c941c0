package main

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
)

// planState returns the state of a plan with its current command, such as paused.
func planState(p fleetdb.Plan) string {
	switch {
	case !p.State.IsFinal() && p.Command == fleetdb.Pause:
		return "paused"
	case !p.State.IsFinal() && (p.Command == fleetdb.Cancel || p.Command == fleetdb.Rollback):
		return "cancelling"
	}
	return string(p.State)
}

// totalOf returns the number of all VMs.
func totalOf(n fleetdb.Counts) (all int) {
	for _, each := range n {
		all += each
	}
	return all
}

// runningCount returns the number of VMs that a worker has.
func runningCount(n fleetdb.Counts) int { return n[fleetdb.Running] + n[fleetdb.Assigned] }

// waitingCount returns the number of VMs that wait for a slot or a worker.
func waitingCount(n fleetdb.Counts) int { return n[fleetdb.Queued] + n[fleetdb.Stranded] }

// rateOf returns the sum of the recent rates of a plan's transfers, in bytes per second.
func rateOf(progress []fleetdb.Progress, plan string) (bytes int64) {
	for _, p := range progress {
		if p.Plan == plan {
			bytes += p.Rate
		}
	}
	return bytes
}

// planSum returns lines with the number of VMs by state, the progress and the limit of a plan that runs.
func planSum(s fleet.Status) []string {
	n := s.Plan.Counts
	lines := []string{fmt.Sprintf("%s: %d of %s done, %d running, %d waiting, %d failed", s.Plan.Name, n[fleetdb.Done], countOf(totalOf(n), "VM"),
		runningCount(n), waitingCount(n), n[fleetdb.Failed])}
	if s.Total > 0 {
		lines = append(lines, s.Plan.Name+": "+progressText(journal.Bytes{Total: s.Total, Done: s.Done, Rate: s.Rate, Left: s.Left}))
	}
	if s.Limit.What != "" {
		lines = append(lines, s.Plan.Name+": "+s.Limit.String())
	}
	return lines
}

// writePlan prints the state of a plan, and its failure.
func writePlan(out *output, p fleetdb.Plan) {
	var parts []string
	for _, s := range []fleetdb.State{fleetdb.Done, fleetdb.Running, fleetdb.Assigned, fleetdb.Queued, fleetdb.Stranded, fleetdb.Failed, fleetdb.Canceled} {
		if n := p.Counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	fmt.Fprintf(out, "Plan %s, %s: %s", p.Name, planState(p), countOf(totalOf(p.Counts), "VM"))
	if len(parts) > 0 {
		fmt.Fprintf(out, " (%s)", strings.Join(parts, ", "))
	}
	fmt.Fprintln(out)
	if p.Failure != nil {
		fmt.Fprintf(out, "%s\n", printable(fault.OneLine(p.Failure.Text)))
		if p.Failure.Hint != "" {
			fmt.Fprintf(out, "Remedy: %s\n", printable(out.followUps.Complete(fault.OneLine(p.Failure.Hint))))
		}
	}
}

// planError returns the error of a plan that has ended; nil if every VM is published, or was withdrawn.
// withdrawn is the number of canceled VMs that were withdrawn: they end as the user requested.
func planError(p fleetdb.Plan, withdrawn int) error {
	if p.Failure != nil {
		return fault.New(fault.KindNamed(p.Failure.Kind), "plan %s: %s", p.Name, p.Failure.Text).WithHint("%s", p.Failure.Hint)
	}
	failed, canceled := p.Counts[fleetdb.Failed], p.Counts[fleetdb.Canceled]-withdrawn
	switch {
	case failed > 0:
		return fault.New(fault.Conflict, "plan %s: %d of %s failed", p.Name, failed, countOf(totalOf(p.Counts), "VM")).
			WithHint("see the reasons with decamp status %s; retry them with decamp retry %s", p.Name, p.Name)
	case canceled > 0:
		return fault.New(fault.Canceled, "plan %s: %d of %s were cancelled", p.Name, canceled, countOf(totalOf(p.Counts), "VM"))
	}
	return nil
}
