package main

import (
	"context"
	"sync"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/roster"
)

// drive is one VM under way: what its runs tell, in the words of the fleet.
type drive struct {
	row roster.VM
	to  fleet.Driver

	mu    sync.Mutex
	step  string
	disks map[diskOf]plan.Bytes
	last  roster.Progress
}

func newDrive(row roster.VM, d fleet.Driver) *drive {
	return &drive{row: row, to: d, disks: map[diskOf]plan.Bytes{}}
}

// turn is asked for by each of the VM's runs; the Driver has them hold one together.
func (dr *drive) turn(ctx context.Context, s migrate.Stage) (func(), error) {
	return dr.to.Turn(ctx, roster.Stage(s), 0)
}

// event passes on what is told of a run.
func (dr *drive) event(e plan.Event) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	switch e.Kind {
	case plan.StepBegan:
		if dr.step != e.Step {
			dr.step = e.Step
			clear(dr.disks)
			dr.stand()
		}
		dr.to.Step(e.Step, "")
	case plan.SourceReread:
		if e.Reread != nil && e.Reread.Chunks > 0 {
			dr.to.Step(e.Step, e.Message)
		}
	case plan.StepRetried:
		if e.Failure != nil {
			dr.to.Step(e.Step, e.Failure.Text)
		}
	case plan.Progressed:
		if e.Bytes != nil {
			dr.disks[diskOf{e.Run, e.Step, e.Disk}] = *e.Bytes
			dr.tell()
		}
	case plan.Waits:
		if e.Step == dr.step {
			dr.to.Step(e.Step, e.Message)
		}
	case plan.RoundDone:
		dr.last.Round++
	case plan.Projected:
		if e.Outlook != nil {
			dr.last.Outage, dr.last.Dirty = e.Outlook.Outage, e.Outlook.Dirty
			dr.to.Progress(dr.last)
		}
	}
}

// stand says that what moved until now does not any more.
func (dr *drive) stand() {
	if dr.last.Rate > 0 {
		dr.last.Rate, dr.last.Busy = 0, bottleneck.Busy{}
		dr.to.Progress(dr.last)
	}
}

func (dr *drive) tell() {
	p := &dr.last
	p.Key, p.Total, p.Done, p.Rate = dr.row.Key, dr.row.Bytes, 0, 0
	total := int64(0)
	var busy bottleneck.Mean
	for _, b := range dr.disks {
		total += b.Total
		p.Done += b.Done + b.Skipped
		p.Rate += b.Rate
		busy.Add(b.Busy, b.Rate)
	}
	p.Busy = busy.Busy()
	p.Total = max(total, p.Done)
	dr.to.Progress(*p)
}
