package sched

import (
	"cmp"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A registry has the resources, plans and runs of a Scheduler by their names.
type registry struct {
	resources map[string]*resource
	plans     map[string]*plan
	runs      map[string]*run
	seq       uint64     // last number that a plan or a run got
	now       *time.Time // time of the last decision, for the resources
}

func newRegistry(now *time.Time) *registry {
	return &registry{resources: map[string]*resource{}, plans: map[string]*plan{}, runs: map[string]*run{}, now: now}
}

// resourceNamed returns the resource of that name. It makes one that is closed if there was none.
func (g *registry) resourceNamed(name string) *resource {
	r := g.resources[name]
	if r == nil {
		r = &resource{
			name:      name,
			holders:   map[*run]bool{},
			uses:      map[*plan]*use{},
			now:       g.now,
			waitQueue: waitQueue{byKey: map[laneKey]*lane{}},
		}
		g.resources[name] = r
	}
	return r
}

// planNamed returns the plan of that name. It makes one of weight 1 if there was none.
func (g *registry) planNamed(name string) *plan {
	p := g.plans[name]
	if p == nil {
		g.seq++
		p = &plan{name: name, seq: g.seq, weight: 1}
		g.plans[name] = p
	}
	return p
}

// dropIdlePlan forgets a plan without runs and settings: thousands come and go in the life of a server.
func (g *registry) dropIdlePlan(p *plan) {
	if p.runs == 0 && !p.paused && p.weight == 1 {
		delete(g.plans, p.name)
	}
}

// addRun adds a run in state gone. Seq is its place in the order of arrival; 0 is the next one.
func (g *registry) addRun(q Request, seq uint64) *run {
	if seq == 0 {
		g.seq++
		seq = g.seq
	}
	q.Needs, q.Windows = sortNeeds(q.Needs), slices.Clone(q.Windows)
	x := &run{req: q, plan: g.planNamed(q.Plan), seq: seq, needs: make([]need, 0, len(q.Needs))}
	for _, n := range q.Needs {
		x.needs = append(x.needs, need{g.resourceNamed(n.Resource), n.Weight})
	}
	x.plan.runs++
	g.runs[q.Run] = x
	return x
}

// removeRun removes a run.
func (g *registry) removeRun(x *run) {
	x.state = gone
	delete(g.runs, x.req.Run)
	x.plan.runs--
	g.dropIdlePlan(x.plan)
}

// checkRequest returns an error if a request or its resources are invalid.
func (g *registry) checkRequest(q Request) error {
	if err := q.check(); err != nil {
		return err
	}
	if len(q.Needs) == 0 {
		return fault.New(fault.Invalid, "run %s needs no resource", q.Run)
	}
	for _, n := range q.Needs {
		if g.resources[n.Resource] == nil {
			return fault.New(fault.Invalid, "run %s needs %s, which has no capacity", q.Run, n.Resource).WithHint("SetCapacity first, Unlimited for no limit")
		}
	}
	return nil
}

// waitingRuns returns the runs that wait, in the order of their arrival.
func (g *registry) waitingRuns() []*run {
	var waiting []*run
	for _, x := range g.runs {
		if x.state != holding {
			waiting = append(waiting, x)
		}
	}
	slices.SortFunc(waiting, func(a, b *run) int { return cmp.Compare(a.seq, b.seq) })
	return waiting
}
