package mover

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// runEvents converts the events of a VM's runs to steps and progress of the fleet. Its methods may be
// called concurrently, because each destination has a run.
type runEvents struct {
	row fleetdb.VM   // the VM
	to  fleet.Driver // receives steps and progress

	mu     sync.Mutex                 // guards the fields below
	step   string                     // current step
	disks  map[diskStep]journal.Bytes // last progress of each disk in the current step
	read   map[diskStep]int64         // bytes read in this step, over all attempts
	points []ratePoint                // points of the last rateWindow, oldest first
	reread int64                      // bytes read back from images, over all steps
	last   fleetdb.Progress           // last reported progress
	rate   float64                    // bytes per second of the fastest round of a warm run; 0 before the first one
	outage fleetdb.Outage             // expected outage, and the longest measured one; zero Began until it is measured
}

// diskStep identifies a disk in one step of a run.
type diskStep struct {
	run  journal.ID // run of one destination
	step string     // name of the step
	disk int32      // device key
}

// ratePoint has the bytes that a VM had copied and read back at a time.
type ratePoint struct {
	at            time.Time // time of the event
	moved, reread int64
}

// rateWindow is the time over which rates of VMs are averaged. It is the same for all VMs, also for
// those that just started: therefore the sum of rates does not exceed the copied bytes.
const rateWindow = 5 * time.Second

// newRunEvents returns the converter for a VM whose driver is d.
func newRunEvents(row fleetdb.VM, d fleet.Driver) *runEvents {
	return &runEvents{row: row, to: d, disks: map[diskStep]journal.Bytes{}, read: map[diskStep]int64{}}
}

// acquireSlot waits for a transfer slot. All runs of the VM call it, and the Driver gives them one slot
// together. It has the type of migrate.Environment.TransferSlot.
func (dr *runEvents) acquireSlot(ctx context.Context, s migrate.TransferKind) (func(), error) {
	return dr.to.RequestSlot(ctx, fleetdb.TransferKind(s), 0)
}

// handleEvent handles one event of a run.
func (dr *runEvents) handleEvent(e journal.Event) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	switch e.Kind {
	case journal.StepStarted:
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
	case journal.Waiting:
		if e.Step == dr.step {
			dr.to.Step(e.Step, e.Message)
		}
	case journal.RoundDone:
		dr.last.Round++
		if e.OutageEstimate != nil {
			dr.rate = max(dr.rate, float64(e.OutageEstimate.Rate))
		}
		dr.noteEstimate(e)
	case journal.OutageEstimated:
		dr.noteEstimate(e)
	case journal.Summarized:
		if e.Outage != nil && e.Outage.Took > dr.outage.Took {
			dr.outage.Began, dr.outage.Took = e.Outage.Began, e.Outage.Took
		}
		dr.to.Published(dr.summaryOf(e))
	}
}

// summaryOf returns the result of a published VM from the summary of its run. The rate of a warm run is
// that of its fastest round. mu must be held.
func (dr *runEvents) summaryOf(e journal.Event) (s fleetdb.Summary) {
	if dr.rate > 0 {
		s.Rates = append(s.Rates, dr.rate)
	}
	if e.Outage != nil {
		s.Outage = e.Outage.Took
	}
	for _, stage := range e.Stages {
		if strings.HasPrefix(stage.Name, "copy ") && stage.Read > 0 && stage.Elapsed > 0 {
			s.Rates = append(s.Rates, float64(stage.Read)/stage.Elapsed.Seconds())
		}
	}
	return s
}

// noteEstimate reports the estimate of e. mu must be held.
func (dr *runEvents) noteEstimate(e journal.Event) {
	if o := e.OutageEstimate; o != nil {
		dr.last.Outage, dr.last.Dirty = o.Outage, o.Dirty
		dr.outage.Estimate, dr.outage.Boot = o.Outage, o.Boot
		dr.to.Progress(dr.last)
	}
}

// measuredOutage returns the outage of the VM; false if this attempt did not measure one. limit is the
// downtime budget of the plan.
func (dr *runEvents) measuredOutage(limit time.Duration) (fleetdb.Outage, bool) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	o := dr.outage
	o.Limit = limit
	return o, !o.Began.IsZero()
}

// resetRates resets the rates after a transfer has stopped. mu must be held, as for the methods below.
func (dr *runEvents) resetRates() {
	dr.points = nil
	if dr.last.Rate+dr.last.Reread > 0 {
		dr.last.Rate, dr.last.Reread, dr.last.Busy = 0, 0, bottleneck.Busy{}
		dr.to.Progress(dr.last)
	}
}

// countBytes adds the bytes read since the last event of the same disk. Each attempt counts from zero.
// Destinations share reads of a source, so only the run with the most bytes counts.
func (dr *runEvents) countBytes(e journal.Event) {
	k := diskStep{e.Run, e.Step, e.Disk}
	more := e.Bytes.Read - dr.disks[k].Read
	if more < 0 { // a new attempt, which counts from zero
		more = e.Bytes.Read
	}
	if readsImages(e.Step) {
		dr.reread += more
		return
	}
	// only bytes beyond the furthest run are new: the others come from shared reads
	before := dr.maxRead(e.Step, e.Disk)
	dr.read[k] += more
	dr.last.Read += dr.maxRead(e.Step, e.Disk) - before
}

// readsImages reports whether a step reads images back, and not the source.
func readsImages(step string) bool { return step == "verify" || step == "verify round" }

// maxRead returns the bytes read of a disk in a step, in the run that has read most.
func (dr *runEvents) maxRead(step string, disk int32) (most int64) {
	for k, n := range dr.read {
		if k.step == step && k.disk == disk {
			most = max(most, n)
		}
	}
	return most
}

// reportProgress reports the progress of the current step to the fleet.
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
	dr.points = append(dr.points, ratePoint{now, dr.last.Read, dr.reread})
	// the first point that stays is the last one before the window
	for len(dr.points) > 2 && now.Sub(dr.points[1].at) >= rateWindow {
		dr.points = dr.points[1:]
	}
	first := dr.points[0]
	d := max(now.Sub(first.at), rateWindow)
	dr.last.Rate = int64(float64(dr.last.Read-first.moved) / d.Seconds())
	dr.last.Reread = int64(float64(dr.reread-first.reread) / d.Seconds())
}
