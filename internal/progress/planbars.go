package progress

import (
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/bars"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/units"
)

// The limits of the area that bars cover.
const (
	maxVMBars = 10 // bars of VMs
	maxVMName = 24 // characters of a VM's name
)

// ShowPlan shows a bar for each of the first running VMs, and the sums of the plan below them.
func ShowPlan(g *bars.Group, s fleet.Status) {
	shown, order, hidden := map[string]bars.Progress{}, []string(nil), 0
	for _, vm := range s.VMs {
		switch p := vm.Progress; {
		case vm.State != fleetdb.Running || p == nil || p.Total == 0:
		case len(order) == maxVMBars:
			hidden++
		default:
			order = append(order, vm.Key.VM)
			shown[vm.Key.VM] = bars.Progress{Label: vmLabel(vm), Text: vmText(vm), Done: p.Done, Total: p.Total}
		}
	}
	lines := PlanLines(s)
	if hidden > 0 {
		lines[0] += fmt.Sprintf(" (%d without a bar)", hidden)
	}
	g.Update(shown, order, lines)
}

// vmLabel returns the name of a VM and its step.
func vmLabel(vm fleet.VMStatus) string {
	name := []rune(fault.Printable(vm.Name))
	if len(name) > maxVMName {
		name = append(name[:maxVMName-1], '…')
	}
	return string(name) + " " + vm.Step
}

// vmText returns the progress of a VM: "61 %, 230 MB/s, 14s left".
func vmText(vm fleet.VMStatus) string {
	s := units.Percent(vm.Progress.Done, vm.Progress.Total)
	if rate := max(vm.Progress.Rate, vm.Progress.Reread); rate > 0 {
		s += ", " + units.Rate(rate, time.Second)
	}
	if left := vm.Left(); left > 0 {
		s += ", " + units.LongDuration(left) + " left"
	}
	return s
}

// PlanLines returns lines with the number of VMs by state, the progress and the limit of a plan that runs.
func PlanLines(s fleet.Status) []string {
	n := s.Plan.Counts
	lines := []string{fmt.Sprintf("%s: %d of %s done, %d running, %d waiting, %d failed", s.Plan.Name, n[fleetdb.Done], units.Count(n.Total(), "VM"),
		n.Running(), n.Waiting(), n[fleetdb.Failed])}
	if s.Total > 0 {
		lines = append(lines, s.Plan.Name+": "+Text(journal.Bytes{Total: s.Total, Done: s.Done, Rate: s.Rate, Left: s.Left}))
	}
	if s.Limit.What != "" {
		lines = append(lines, s.Plan.Name+": "+s.Limit.String())
	}
	return lines
}
