package sched

import (
	"slices"
	"strings"
	"time"
)

// A Snapshot is the state of the scheduler for a status page. It shares no memory with the scheduler.
type Snapshot struct {
	At        time.Time       `json:"at"`        // time of the last decision
	Resources []ResourceState `json:"resources"` // all resources, by name
	Plans     []PlanState     `json:"plans"`     // all known plans, by name
	Waiting   []Waiting       `json:"waiting"`   // waiting runs in the order of arrival; their Blocks have no Allocations
}

// ResourceState is the state of one resource.
type ResourceState struct {
	Name        string       `json:"name"`                  // name from SetCapacity
	Capacity    int64        `json:"capacity"`              // units of the resource; 0 is closed
	Used        int64        `json:"used"`                  // units in use; more than Capacity after a limit was lowered
	Waiting     int          `json:"waiting"`               // waiting runs that need the resource
	ReservedFor string       `json:"reservedFor,omitempty"` // run that units are reserved for; "" if none
	Allocations []Allocation `json:"holders,omitempty"`     // runs that hold units, the first to end first
}

// PlanState is the state of one plan.
type PlanState struct {
	Name    string  `json:"name"`             // name of the plan
	Weight  float64 `json:"weight"`           // share relative to other plans; 1 by default
	Paused  bool    `json:"paused,omitempty"` // PausePlan was called and ResumePlan was not
	Granted int     `json:"granted"`          // number of runs with a grant
	Waiting int     `json:"waiting"`          // number of runs without a grant, paused ones included
}

// Snapshot returns the state. With 10,000 waiting runs it takes tens of milliseconds, so one snapshot
// should serve all readers.
func (s *Scheduler) Snapshot() Snapshot {
	seen := report{}
	snap := Snapshot{At: s.queue.now, Resources: resourceStates(s.registry, seen), Plans: planStates(s.registry)}
	for _, x := range s.registry.waitingRuns() {
		w := explainWait(x, s.queue.now, s.paused, seen)
		for i := range w.Blocks {
			w.Blocks[i].Allocations = nil // the resource has the list
		}
		snap.Waiting = append(snap.Waiting, w)
	}
	return snap
}

// resourceStates returns the states of all resources by name. seen keeps the holders for the
// explanations.
func resourceStates(g *registry, seen report) []ResourceState {
	states := make([]ResourceState, 0, len(g.resources))
	for _, r := range g.resources {
		state := ResourceState{
			Name: r.name, Capacity: r.capacity, Used: r.used,
			Waiting: r.waiting, Allocations: seen.allocationsOf(r),
		}
		if r.reservedFor != nil {
			state.ReservedFor = r.reservedFor.req.Run
		}
		states = append(states, state)
	}
	slices.SortFunc(states, func(a, b ResourceState) int { return strings.Compare(a.Name, b.Name) })
	return states
}

// planStates returns the states of all known plans by name.
func planStates(g *registry) []PlanState {
	states := make([]PlanState, 0, len(g.plans))
	for _, p := range g.plans {
		states = append(states, PlanState{p.name, p.weight, p.paused, p.holding, p.runs - p.holding})
	}
	slices.SortFunc(states, func(a, b PlanState) int { return strings.Compare(a.Name, b.Name) })
	return states
}
