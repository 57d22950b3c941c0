package fleet

import (
	"container/heap"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/sched"
)

// A Simulation plays plans through the scheduler as it is, with transfers that are simulated,
// in a time of its own. It knows the cold copy of each VM and nothing that fails.
type Simulation struct {
	VMs        []roster.VM      // as Mover.List told them
	Workers    []roster.Worker  // nil: one, that takes everything
	Capacities map[string]int64 // as Mover.Capacities

	// Needs is Mover.Needs. What it expects is how long a transfer takes that no rate bounds.
	Needs func(roster.VM, roster.Stage) ([]sched.Need, time.Duration)

	// Rates are bytes a second, which those who share one have in equal parts: "host:esx1/rate",
	// "host:*/rate" of every other host, "datastore:ds1/rate", "source:vc1:443/rate",
	// "worker:w1/rate", "link:all/rate" of all together. Transfers have "vm:*/rate" each, and
	// "disk:*/rate" for each of their disks.
	Rates map[string]int64

	// Crowds are the part of a rate that each transfer beside the first costs, by its name: 0.001
	// for disks that read 10 % less with a hundred readers.
	Crowds map[string]float64

	// Hold is how long each VM has its slots beside its transfer, before it: 0 as we do it, minutes
	// with tools that start a container first.
	Hold time.Duration
}

// Simulated is how it went.
type Simulated struct {
	Makespan time.Duration  `json:"makespan"`
	Bytes    int64          `json:"bytes"`
	VMs      []SimulatedVM  `json:"vms"` // as they began
	Loads    []Load         `json:"loads"`
	Never    []NeverStarted `json:"never,omitempty"` // and why
}

// SimulatedVM is one transfer. Times are from the beginning.
type SimulatedVM struct {
	roster.Key
	Name   string        `json:"name"`
	Host   string        `json:"host"`
	Worker string        `json:"worker"`
	Began  time.Duration `json:"began"`
	Ended  time.Duration `json:"ended"`
	Waited string        `json:"waited,omitempty"` // for what, at the beginning
}

// Load is what a host or a worker had to do.
type Load struct {
	Name  string        `json:"name"` // "host esx1", "worker w1"
	VMs   int           `json:"vms"`
	Bytes int64         `json:"bytes"`
	Most  int           `json:"most"`           // transfers at a time
	Busy  time.Duration `json:"busy"`           // with one or more
	Limit int64         `json:"rate,omitempty"` // bytes a second; 0: none
}

// NeverStarted is a VM that nothing could be begun for.
type NeverStarted struct {
	roster.Key
	Why string `json:"why"`
}

// epoch is when simulated time begins. Nobody sees it.
var epoch = time.Unix(0, 0).UTC()

// Simulate plays s to its end. With more than a thousand streams, which is about as many hosts,
// times are up to a thousandth too long.
func Simulate(ctx context.Context, s Simulation) (Simulated, error) {
	p := newPlay(s)
	for p.decide(); len(p.under) > 0; p.decide() {
		if ctx.Err() != nil {
			return Simulated{}, ctx.Err()
		}
		if p.under[0].ends == forever {
			return Simulated{}, fault.New(fault.Invalid, "the transfers of %s never end: a rate that they share is 0", p.under[0].flows[0].vm.Name).
				WithHint("leave the rate out for none, or give it a value")
		}
		p.step()
	}
	return p.end(), nil
}

// A play is a simulation under way. The desk is the scheduler's own; it has no roster.
type play struct {
	Simulation
	desk    *desk
	now     time.Time
	under   streamHeap // that something flows in
	streams map[string]*stream
	limits  map[string]*limit
	changed []*stream // whose rates have to be found anew
	result  Simulated
	loads   map[string]*load
	waits   map[roster.Key]string // as it began
}

func newPlay(s Simulation) *play {
	p := &play{Simulation: s, now: epoch, streams: map[string]*stream{}, limits: map[string]*limit{}, loads: map[string]*load{}}
	if len(s.Workers) == 0 {
		p.Workers = []roster.Worker{{Name: "any", Offers: map[string]string{"/": "any"}, VMs: len(s.VMs) + 1}}
	}
	n := New(Config{Mover: script{needs: s.Needs}, Now: func() time.Time { return p.now }})
	p.desk = newDesk(n, &tenure{}, nil)
	p.desk.loaded = true
	for i := range p.Workers {
		p.Workers[i].Alive = true
	}
	p.desk.setWorkers(p.Workers)
	for i, v := range s.VMs {
		if p.desk.plans[v.Plan] == nil {
			p.desk.plans[v.Plan] = &book{Plan: roster.Plan{Name: v.Plan}, caps: s.Capacities, ready: true, opened: true}
		}
		v.State, v.Asks, v.Rev, v.Seq = roster.Queued, roster.First, 1, int64(i+1)
		p.desk.put(v)
	}
	return p
}

// decide begins what may begin now.
func (p *play) decide() {
	for _, g := range p.desk.sched.Decide(p.now) {
		v := p.desk.vms[keyOf(g.Plan, g.Run)]
		v.Worker = p.desk.placed[v.Key].worker
		v.State, v.Asks, v.Holds, v.Since, v.Rev = roster.Running, roster.NoStage, true, p.now, v.Rev+1
		p.desk.put(v)
		p.begin(v, g)
	}
	p.settle()
	if p.waits == nil {
		p.waits = map[roster.Key]string{}
		for _, w := range p.desk.board().Waiting {
			p.waits[roster.Key{Plan: w.Plan, VM: w.VM}] = w.Sentence
		}
	}
}

// begin has a VM hold its slots for a while, then move.
func (p *play) begin(v roster.VM, g sched.Grant) {
	f := &flow{vm: v, at: len(p.result.VMs)}
	p.result.VMs = append(p.result.VMs, SimulatedVM{Key: v.Key, Name: v.Name, Host: v.Host, Worker: v.Worker, Began: p.now.Sub(epoch), Waited: p.waits[v.Key]})
	p.result.Bytes += v.Bytes
	for _, name := range loadsOf(v) {
		p.load(name).begin(v, p.now)
	}
	b := p.boundOf(v)
	moves := func() { p.enter(p.streamOf(b), f, float64(v.Bytes)) }
	if b.none() {
		moves = func() { p.enter(p.clock(), f, expected(g)) }
	}
	if p.Hold > 0 {
		f.then = moves
		p.enter(p.clock(), f, float64(p.Hold))
	} else {
		moves()
	}
}

// expected is how long the scheduler thinks that a transfer takes, in nanoseconds.
func expected(g sched.Grant) float64 {
	if g.Until.IsZero() {
		return 0
	}
	return float64(g.Until.Sub(g.Since))
}

// enter adds a flow to a stream.
func (p *play) enter(s *stream, f *flow, bytes float64) {
	s.advance(p.now)
	s.add(f, bytes)
	p.change(s)
	if s.place < 0 {
		heap.Push(&p.under, s)
	}
}

// Beyond so many streams all ends within a part of the time that has passed are one: finding
// everybody's rate anew for each would take minutes, and what is simulated is not known so well.
const (
	manyStreams = 1000
	finest      = 1000 // a thousandth
)

// step goes on to the next end of transfers.
func (p *play) step() {
	p.now = p.under[0].ends
	if len(p.under) > manyStreams {
		p.now = p.now.Add(p.now.Sub(epoch) / finest)
	}
	for len(p.under) > 0 && !p.under[0].ends.After(p.now) {
		s := p.under[0]
		s.advance(p.now)
		for _, f := range s.over() {
			p.over(f)
		}
		p.change(s)
		p.renew(s)
	}
}

// over ends a flow.
func (p *play) over(f *flow) {
	if next := f.then; next != nil {
		f.then = nil
		next()
		return
	}
	p.result.VMs[f.at].Ended = p.now.Sub(epoch)
	for _, name := range loadsOf(f.vm) {
		p.load(name).end(p.now)
	}
	v := p.desk.vms[f.vm.Key]
	v.State, v.Holds, v.Rev = roster.Done, false, v.Rev+1
	p.desk.put(v)
}

// change notes that a stream has other flows than when rates were found.
func (p *play) change(s *stream) {
	if !s.changed {
		s.changed = true
		p.changed = append(p.changed, s)
	}
}

// settle finds the rates of all that changed, and of what shares limits with it.
func (p *play) settle() {
	for _, s := range p.changed {
		if !s.changed {
			continue
		}
		of := around(s)
		for _, s := range of.streams {
			s.changed = false
			s.advance(p.now)
		}
		share(of)
		for _, s := range of.streams {
			p.renew(s)
		}
	}
	p.changed = p.changed[:0]
}

// renew puts a stream where it belongs among those under way.
func (p *play) renew(s *stream) {
	switch {
	case len(s.flows) > 0:
		s.ends = s.next()
		heap.Fix(&p.under, s.place)
	case s.place >= 0:
		heap.Remove(&p.under, s.place)
	}
}

// end sums up.
func (p *play) end() Simulated {
	p.result.Makespan = p.now.Sub(epoch)
	for name, l := range p.loads {
		l.Limit = said(p.Rates, strings.Replace(name, " ", ":", 1)+"/rate")
		p.result.Loads = append(p.result.Loads, l.Load)
	}
	slices.SortFunc(p.result.Loads, func(a, b Load) int { return strings.Compare(a.Name, b.Name) })
	for _, w := range p.desk.board().Waiting {
		p.result.Never = append(p.result.Never, NeverStarted{roster.Key{Plan: w.Plan, VM: w.VM}, w.Sentence})
	}
	return p.result
}

// script is the Mover of a simulation: it is only asked what is needed.
type script struct {
	Mover
	needs func(roster.VM, roster.Stage) ([]sched.Need, time.Duration)
}

func (s script) Needs(v roster.VM, stage roster.Stage) ([]sched.Need, time.Duration) {
	return s.needs(v, stage)
}
