// Package simulate predicts how long the cold copies of plans take. It passes their VMs to the real admission
// and scheduling (packages admission and sched), in simulated time, with transfers that share the rates of hosts,
// datastores, workers and links by max-min fairness. Failures and warm rounds are not simulated.
//
// Transfers that share the same rates are one stream, so the cost grows with the hosts and not with the VMs.
package simulate

import (
	"container/heap"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched"
)

// A Config describes a simulation.
type Config struct {
	VMs        []fleetdb.VM     // VMs as fleet.Mover.List reports them
	Workers    []fleetdb.Worker // workers; nil means one worker that takes each VM
	Capacities map[string]int64 // limits of every plan, as fleet.Mover.Capacities returns them

	// Needs returns what a transfer holds, and how long it takes if no rate bounds it.
	Needs func(fleetdb.VM, fleetdb.TransferKind) ([]sched.Need, time.Duration)

	// Rates are bytes per second that transfers share equally, by name: "host:esx1/rate", "host:*/rate" for
	// every other host, "datastore:ds1/rate", "source:vc1:443/rate", "worker:w1/rate", "link:all/rate" for all
	// transfers together. "vm:*/rate" is the rate of each transfer by itself, "disk:*/rate" of each of its disks.
	Rates map[string]int64

	// Crowds are the parts of a rate, by its name, that each transfer beside the first one costs: 0.001 for disks
	// that a hundred readers read 10 % slower.
	Crowds map[string]float64

	// Hold is how long each VM holds its slots before its transfer: 0 for decamp, minutes for tools that start
	// a container first.
	Hold time.Duration
}

// A Result is the duration of all transfers. Times are relative to the beginning.
type Result struct {
	Makespan     time.Duration  `json:"makespan"`        // time from the beginning to the end of the last transfer
	Bytes        int64          `json:"bytes"`           // allocated bytes of all VMs that started
	VMs          []VM           `json:"vms"`             // VMs in the order of their starts
	Loads        []Load         `json:"loads"`           // work of hosts and workers, by name
	NeverStarted []NeverStarted `json:"never,omitempty"` // VMs whose transfer could not begin
}

// A VM is one transfer.
type VM struct {
	fleetdb.Key
	Name       string        `json:"name"`                 // name of the VM
	Host       string        `json:"host"`                 // ESXi host of the VM
	Worker     string        `json:"worker"`               // worker that executed it
	Began      time.Duration `json:"began"`                // start of its slots, from the beginning
	Ended      time.Duration `json:"ended"`                // end of its transfer
	WaitReason string        `json:"waitReason,omitempty"` // reason of the wait before its start
}

// Load is the work of a host or of a worker.
type Load struct {
	Name  string        `json:"name"`           // "host esx1", "worker w1"
	VMs   int           `json:"vms"`            // number of transfers
	Bytes int64         `json:"bytes"`          // bytes of the transfers
	Peak  int           `json:"most"`           // most transfers at the same time
	Busy  time.Duration `json:"busy"`           // time with at least one transfer
	Limit int64         `json:"rate,omitempty"` // bytes per second; 0: no limit
}

// NeverStarted is a VM whose transfer could not begin.
type NeverStarted struct {
	fleetdb.Key
	Reason string `json:"reason"` // reason of its wait at the end
}

// epoch is the time at which the simulation begins. No result contains it.
var epoch = time.Unix(0, 0).UTC()

// Run simulates c to its end. With more than a thousand streams, which is about as many hosts, times are up to a
// thousandth too long.
func Run(ctx context.Context, c Config) (Result, error) {
	s := newSimulation(c)
	for s.startTransfers(); len(s.active) > 0; s.startTransfers() {
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		if s.active[0].ends == forever {
			return Result{}, fault.New(fault.Invalid, "the transfers of %s never end: a rate that they share is 0", s.active[0].flows[0].vm.Name).
				WithHint("remove the rate for no limit, or set a value above 0")
		}
		s.advanceTime()
	}
	return s.toResult(), nil
}

// A simulation is the state of a Run.
type simulation struct {
	Config
	admission *admission.Controller  // the real admission, in simulated time
	now       time.Time              // simulated time
	active    streamHeap             // streams with flows
	streams   map[string]*stream     // streams by their bounds; see streamOf
	limits    map[string]*limit      // shared limits by name
	changed   []*stream              // streams whose rates must be computed again
	result    Result                 // result so far
	loads     map[string]*load       // loads by name
	waits     map[fleetdb.Key]string // reason of each VM's wait after the first decision
}

// newSimulation returns a simulation whose VMs are all queued.
func newSimulation(c Config) *simulation {
	s := &simulation{Config: c, now: epoch, streams: map[string]*stream{}, limits: map[string]*limit{}, loads: map[string]*load{}}
	if len(c.Workers) == 0 {
		s.Workers = []fleetdb.Worker{{Name: "any", Offers: map[string]string{"/": "any"}, VMs: len(c.VMs) + 1}}
	}
	s.admission = admission.New(admission.Options{Needs: c.Needs, Now: func() time.Time { return s.now }, Log: slog.New(slog.DiscardHandler)})
	s.admission.Start()
	workers := slices.Clone(s.Workers)
	for i := range workers {
		workers[i].Alive = true
	}
	s.admission.SetWorkers(workers)
	plans := map[string]bool{}
	for i, v := range c.VMs {
		if !plans[v.Plan] {
			plans[v.Plan] = true
			s.admission.SetPlan(admission.Plan{Name: v.Plan, Capacities: c.Capacities, Ready: true})
		}
		v.State, v.Requested, v.Rev, v.Seq = fleetdb.Queued, fleetdb.First, 1, int64(i+1)
		s.admission.SetVM(v)
	}
	return s
}

// startTransfers begins the transfers that may begin now.
func (s *simulation) startTransfers() {
	for _, g := range s.admission.Decide() {
		v, _ := s.admission.VM(g.Key)
		v.Worker = g.Worker
		v.State, v.Requested, v.Granted, v.Since, v.Rev = fleetdb.Running, fleetdb.NoTransfer, true, s.now, v.Rev+1
		s.admission.SetVM(v)
		s.startTransfer(v, g.Expected)
	}
	s.shareRates()
	if s.waits == nil {
		s.waits = map[fleetdb.Key]string{}
		for _, w := range s.admission.Snapshot().Waiting {
			s.waits[fleetdb.Key{Plan: w.Plan, VM: w.VM}] = w.Reason
		}
	}
}

// startTransfer begins the transfer of a VM, after the time for which it only holds its slots.
func (s *simulation) startTransfer(v fleetdb.VM, expected time.Duration) {
	f := &flow{vm: v, at: len(s.result.VMs)}
	s.result.VMs = append(s.result.VMs, VM{Key: v.Key, Name: v.Name, Host: v.Host, Worker: v.Worker, Began: s.now.Sub(epoch), WaitReason: s.waits[v.Key]})
	s.result.Bytes += v.Bytes
	for _, name := range loadsOf(v) {
		s.loadNamed(name).addTransfer(v, s.now)
	}
	b := s.boundOf(v)
	transfer := func() { s.addFlow(s.streamOf(b), f, float64(v.Bytes)) }
	if b.isEmpty() {
		transfer = func() { s.addFlow(s.timeStream(), f, float64(expected)) }
	}
	if s.Hold > 0 {
		f.then = transfer
		s.addFlow(s.timeStream(), f, float64(s.Hold))
	} else {
		transfer()
	}
}

// addFlow adds a flow of so many bytes to a stream.
func (s *simulation) addFlow(to *stream, f *flow, bytes float64) {
	to.advanceTo(s.now)
	to.addFlow(f, bytes)
	s.markChanged(to)
	if to.place < 0 {
		heap.Push(&s.active, to)
	}
}

// With more streams than manyStreams, all transfers that end within a part of the elapsed time end
// together: computing all rates again for each of them would take minutes, and the input is not that
// exact.
const (
	manyStreams = 1000 // streams from which on transfers end together
	finestStep  = 1000 // a thousandth
)

// advanceTime advances the time to the next end of transfers.
func (s *simulation) advanceTime() {
	s.now = s.active[0].ends
	if len(s.active) > manyStreams {
		s.now = s.now.Add(s.now.Sub(epoch) / finestStep)
	}
	for len(s.active) > 0 && !s.active[0].ends.After(s.now) {
		first := s.active[0]
		first.advanceTo(s.now)
		for _, f := range first.removeEnded() {
			s.endFlow(f)
		}
		s.markChanged(first)
		s.updatePlace(first)
	}
}

// endFlow ends a flow. Its VM is done unless another flow follows.
func (s *simulation) endFlow(f *flow) {
	if next := f.then; next != nil {
		f.then = nil
		next()
		return
	}
	s.result.VMs[f.at].Ended = s.now.Sub(epoch)
	for _, name := range loadsOf(f.vm) {
		s.loadNamed(name).removeTransfer(s.now)
	}
	v, _ := s.admission.VM(f.vm.Key)
	v.State, v.Granted, v.Rev = fleetdb.Done, false, v.Rev+1
	s.admission.SetVM(v)
}

// markChanged records that the flows of a stream have changed, so that its rate is outdated.
func (s *simulation) markChanged(of *stream) {
	if !of.changed {
		of.changed = true
		s.changed = append(s.changed, of)
	}
}

// shareRates computes the rates of the streams that have changed and of all that share limits with them.
func (s *simulation) shareRates() {
	for _, changed := range s.changed {
		if !changed.changed {
			continue
		}
		a := areaOf(changed)
		for _, each := range a.streams {
			each.changed = false
			each.advanceTo(s.now)
		}
		computeRates(a)
		for _, each := range a.streams {
			s.updatePlace(each)
		}
	}
	s.changed = s.changed[:0]
}

// updatePlace moves a stream to its place among the active streams, or removes a stream without flows.
func (s *simulation) updatePlace(one *stream) {
	switch {
	case len(one.flows) > 0:
		one.ends = one.nextEnd()
		heap.Fix(&s.active, one.place)
	case one.place >= 0:
		heap.Remove(&s.active, one.place)
	}
}

// toResult returns the result. The simulation must not continue afterwards.
func (s *simulation) toResult() Result {
	s.result.Makespan = s.now.Sub(epoch)
	for name, l := range s.loads {
		l.Limit = valueOf(s.Rates, strings.Replace(name, " ", ":", 1)+"/rate")
		s.result.Loads = append(s.result.Loads, l.Load)
	}
	slices.SortFunc(s.result.Loads, func(a, b Load) int { return strings.Compare(a.Name, b.Name) })
	for _, w := range s.admission.Snapshot().Waiting {
		s.result.NeverStarted = append(s.result.NeverStarted, NeverStarted{fleetdb.Key{Plan: w.Plan, VM: w.VM}, w.Reason})
	}
	return s.result
}
