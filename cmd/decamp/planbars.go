package main

import (
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/bars"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
)

// The limits of the area that bars cover.
const (
	maxVMBars = 10 // bars of VMs
	maxVMName = 24 // characters of a VM's name
)

// showPlan shows a bar for each of the first running VMs, and the sums of the plan below them.
func showPlan(g *bars.Group, s fleet.Status) {
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
	lines := planSum(s)
	if hidden > 0 {
		lines[0] += fmt.Sprintf(" (%d without a bar)", hidden)
	}
	g.Update(shown, order, lines)
}

// vmLabel returns the name of a VM and its step.
func vmLabel(vm fleet.VMStatus) string {
	name := []rune(printable(vm.Name))
	if len(name) > maxVMName {
		name = append(name[:maxVMName-1], '…')
	}
	return string(name) + " " + vm.Step
}

// vmText returns the progress of a VM: "61 %, 230 MB/s, 14s left".
func vmText(vm fleet.VMStatus) string {
	s := percentText(vm.Progress.Done, vm.Progress.Total)
	if rate := max(vm.Progress.Rate, vm.Progress.Reread); rate > 0 {
		s += ", " + rateText(rate, time.Second)
	}
	if left := vm.Left(); left > 0 {
		s += ", " + longTime(left) + " left"
	}
	return s
}
