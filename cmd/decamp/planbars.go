package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"

	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
)

// planBars shows a bar for each of the first running VMs of a plan, and the sums of the plan below them.
// Messages scroll above them.
type planBars struct {
	screen *screen                // standard error; messages go above the bars
	pool   *mpb.Progress          // draws the bars
	byVM   map[fleetdb.Key]*vmBar // bars of running VMs
	sums   []*textLine            // lines below the bars
}

// vmBar is the bar of a VM with its step.
type vmBar struct {
	*bar
	label atomic.Value // string: name of the VM and its step
}

// The limits of the area that bars cover.
const (
	maxVMBars = 10      // bars of VMs
	maxVMName = 24      // characters of a VM's name
	belowVMs  = 1 << 20 // priority of the sums, greater than the number of bars
)

// newPlanBars returns bars on the screen, whose messages appear above them until close.
func newPlanBars(s *screen) *planBars {
	b := &planBars{screen: s, pool: mpb.New(mpb.WithOutput(s.file)), byVM: map[fleetdb.Key]*vmBar{}}
	s.redirect(b.pool)
	return b
}

// update shows the status of the plan.
func (b *planBars) update(s fleet.Status) {
	shown, hidden := map[fleetdb.Key]bool{}, 0
	for _, vm := range s.VMs {
		switch p := vm.Progress; {
		case vm.State != fleetdb.Running || p == nil || p.Total == 0:
		case len(shown) == maxVMBars:
			hidden++
		default:
			shown[vm.Key] = true
			b.showVM(vm)
		}
	}
	for key, bar := range b.byVM {
		if !shown[key] {
			bar.Abort(true)
			delete(b.byVM, key)
		}
	}
	lines := planSum(s)
	if hidden > 0 {
		lines[0] += fmt.Sprintf(" (%d without a bar)", hidden)
	}
	for len(b.sums) > len(lines) {
		b.sums[len(b.sums)-1].Abort(true)
		b.sums = b.sums[:len(b.sums)-1]
	}
	for i, text := range lines {
		if i == len(b.sums) {
			b.sums = append(b.sums, newTextLine(b.pool, belowVMs+i))
		}
		b.sums[i].text.Store(text)
	}
}

// showVM shows the progress of a running VM.
func (b *planBars) showVM(vm fleet.VMStatus) {
	n := b.byVM[vm.Key]
	if n == nil {
		n = &vmBar{}
		n.label.Store("")
		n.bar = newBar(b.pool, func() string { return n.label.Load().(string) }, vmText)
		b.byVM[vm.Key] = n
	}
	name := []rune(printable(vm.Name))
	if len(name) > maxVMName {
		name = append(name[:maxVMName-1], '…')
	}
	n.label.Store(string(name) + " " + vm.Step)
	p := vm.Progress
	n.update(journal.Bytes{Total: p.Total, Done: p.Done, Read: p.Read, Rate: max(p.Rate, p.Reread), Left: vm.Left()})
}

// vmText returns the progress of a VM: "61 %, 230 MB/s, 14s left".
func vmText(b journal.Bytes) string {
	s := percentText(b.Done, b.Total)
	if b.Rate > 0 {
		s += ", " + rateText(b.Rate, time.Second)
	}
	if b.Left > 0 {
		s += ", " + longTime(b.Left) + " left"
	}
	return s
}

// close removes all bars and waits until they are no longer drawn.
func (b *planBars) close() {
	for _, bar := range b.byVM {
		bar.Abort(true)
	}
	for _, line := range b.sums {
		line.Abort(true)
	}
	b.pool.Wait()
	b.screen.redirect(nil)
}
