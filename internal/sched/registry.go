package sched

import (
	"cmp"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A registry contains the resources, plans and runs of a Scheduler by their names.
type registry struct {
	resources map[string]*resource // resources by name; they are never removed
	plans     map[string]*plan     // plans with runs, a pause, or a weight other than 1
	runs      map[string]*run      // runs that wait or hold resources
	seq       uint64               // last sequence number that was given to a plan or a run
	now       *time.Time           // time of the last decision, for the resources
}

// newRegistry returns an empty registry. Resources read the time of the current decision from now.
func newRegistry(now *time.Time) *registry {
	return &registry{resources: map[string]*resource{}, plans: map[string]*plan{}, runs: map[string]*run{}, now: now}
}

// resourceNamed returns the resource of that name. It adds a closed resource if none exists.
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

// planNamed returns the plan of that name. It adds a plan of weight 1 if none exists.
func (g *registry) planNamed(name string) *plan {
	p := g.plans[name]
	if p == nil {
		g.seq++
		p = &plan{name: name, seq: g.seq, weight: 1}
		g.plans[name] = p
	}
	return p
}

// dropIdlePlan removes a plan without runs and settings: a server handles thousands of plans in its
// lifetime.
func (g *registry) dropIdlePlan(p *plan) {
	if p.runs == 0 && !p.paused && p.weight == 1 {
		delete(g.plans, p.name)
	}
}

// addRun adds a run in state gone. seq is its position in the order of arrival; 0 means the next one.
// The registry copies the slices of q.
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

// removeRun removes a run, and its plan if that has no other run and no settings.
func (g *registry) removeRun(x *run) {
	x.state = gone
	delete(g.runs, x.req.Run)
	x.plan.runs--
	g.dropIdlePlan(x.plan)
}

// checkRequest returns fault.Invalid if q is malformed, needs nothing, or names a resource without
// SetCapacity.
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

// waitingRuns returns the runs that wait, paused ones included, in the order of their arrival.
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
