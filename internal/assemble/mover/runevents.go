package mover

import (
	"context"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// drive is one VM under way: what its runs tell, in the words of the fleet.
type runEvents struct {
	row fleetdb.VM
	to  fleet.Driver

	mu     sync.Mutex
	step   string
	disks  map[diskStep]journal.Bytes
	read   map[diskStep]int64 // bytes read in this step, over all attempts
	points []ratePoint        // points of the last rateWindow, oldest first
	reread int64              // bytes read back from images
	last   fleetdb.Progress
}

// diskStep is a disk in one step of a run.
type diskStep struct {
	run  journal.ID
	step string
	disk int32
}

// moment is how much a VM had moved at a time.
type ratePoint struct {
	at            time.Time
	moved, reread int64
}

// rateWindow is the time over which rates of VMs are averaged. It is the same for all, also for those
// that just began: therefore the sum of rates does not exceed the copied bytes.
const rateWindow = 5 * time.Second

func newRunEvents(row fleetdb.VM, d fleet.Driver) *runEvents {
	return &runEvents{row: row, to: d, disks: map[diskStep]journal.Bytes{}, read: map[diskStep]int64{}}
}

// acquireSlot is asked for by each of the VM's runs; the Driver has them hold one together.
func (dr *runEvents) acquireSlot(ctx context.Context, s migrate.Stage) (func(), error) {
	return dr.to.Turn(ctx, fleetdb.Stage(s), 0)
}

// handleEvent handles an event of a run.
func (dr *runEvents) handleEvent(e journal.Event) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	switch e.Kind {
	case journal.StepBegan:
		if dr.step != e.Step {
			dr.step = e.Step
			clear(dr.disks)
			clear(dr.read)
			dr.resetRates()
		}
		dr.to.Step(e.Step, "")
	case journal.SourceReread:
		if e.Reread != nil && e.Reread.Chunks > 0 {
			dr.to.Step(e.Step, e.Message)
		}
	case journal.StepRetried:
		if e.Failure != nil {
			dr.to.Step(e.Step, e.Failure.Text)
		}
	case journal.Progressed:
		if e.Bytes != nil {
			dr.countBytes(e)
			dr.disks[diskStep{e.Run, e.Step, e.Disk}] = *e.Bytes
			dr.reportProgress(e.Time)
		}
	case journal.Waits:
		if e.Step == dr.step {
			dr.to.Step(e.Step, e.Message)
		}
	case journal.RoundDone:
		dr.last.Round++
	case journal.Projected:
		if e.Outlook != nil {
			dr.last.Outage, dr.last.Dirty = e.Outlook.Outage, e.Outlook.Dirty
			dr.to.Progress(dr.last)
		}
	}
}

// resetRates resets the rates of a transfer that stopped.
func (dr *runEvents) resetRates() {
	dr.points = nil
	if dr.last.Rate+dr.last.Reread > 0 {
		dr.last.Rate, dr.last.Reread, dr.last.Busy = 0, 0, bottleneck.Busy{}
		dr.to.Progress(dr.last)
	}
}

// countBytes adds the bytes read since the last event of the same disk. An attempt counts from zero. Several
// destinations share reads of a source: the run with the most bytes counts.
func (dr *runEvents) countBytes(e journal.Event) {
	k := diskStep{e.Run, e.Step, e.Disk}
	more := e.Bytes.Read - dr.disks[k].Read
	if more < 0 {
		more = e.Bytes.Read
	}
	if readsImages(e.Step) {
		dr.reread += more
		return
	}
	before := dr.maxRead(e.Step, e.Disk)
	dr.read[k] += more
	dr.last.Moved += dr.maxRead(e.Step, e.Disk) - before
}

// readsImages reports whether a step reads images back, not the source.
func readsImages(step string) bool { return step == "verify" || step == "prove" }

func (dr *runEvents) maxRead(step string, disk int32) (most int64) {
	for k, n := range dr.read {
		if k.step == step && k.disk == disk {
			most = max(most, n)
		}
	}
	return most
}

func (dr *runEvents) reportProgress(now time.Time) {
	p := &dr.last
	p.Key, p.Total, p.Done = dr.row.Key, dr.row.Bytes, 0
	dr.updateRates(now)
	total := int64(0)
	var busy bottleneck.Mean
	for _, b := range dr.disks {
		total += b.Total
		p.Done += b.Done + b.Skipped
		busy.Add(b.Busy, b.Rate)
	}
	p.Busy = busy.Busy()
	p.Total = max(total, p.Done)
	dr.to.Progress(*p)
}

// updateRates sets the bytes copied and read back per second over the last rateWindow.
func (dr *runEvents) updateRates(now time.Time) {
	dr.points = append(dr.points, ratePoint{now, dr.last.Moved, dr.reread})
	for len(dr.points) > 2 && now.Sub(dr.points[1].at) >= rateWindow {
		dr.points = dr.points[1:]
	}
	first := dr.points[0]
	d := max(now.Sub(first.at), rateWindow)
	dr.last.Rate = int64(float64(dr.last.Moved-first.moved) / d.Seconds())
	dr.last.Reread = int64(float64(dr.reread-first.reread) / d.Seconds())
}
