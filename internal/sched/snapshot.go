package sched

import (
	"slices"
	"strings"
	"time"
)

// A Snapshot is everything at once, for a status page. It shares nothing with the
// scheduler. Waiting is in the order of arrival, the rest by name.
type Snapshot struct {
	At        time.Time       `json:"at"` // time of the last decision
	Resources []ResourceState `json:"resources"`
	Plans     []PlanState     `json:"plans"`
	Waiting   []Waiting       `json:"waiting"`
}

// ResourceState is one resource. Used may be above Capacity.
type ResourceState struct {
	Name     string   `json:"name"`
	Capacity int64    `json:"capacity"`
	Used     int64    `json:"used"`
	Waiting  int      `json:"waiting"`         // runs in line that need it
	Aside    string   `json:"aside,omitempty"` // the run that something is set aside for
	Holders  []Holder `json:"holders,omitempty"`
}

// PlanState is one plan.
type PlanState struct {
	Name    string  `json:"name"`
	Weight  float64 `json:"weight"`
	Paused  bool    `json:"paused,omitempty"`
	Holding int     `json:"holding"` // number of runs with a grant
	Waiting int     `json:"waiting"`
}

// Snapshot returns the state. With 10,000 runs in line it takes tens of milliseconds:
// take one for all who ask, not one each.
func (s *Scheduler) Snapshot() Snapshot {
	seen := report{}
	snap := Snapshot{At: s.queue.now, Resources: resourceStates(s.registry, seen), Plans: planStates(s.registry)}
	for _, x := range s.registry.waitingRuns() {
		w := explainWait(x, s.queue.now, s.paused, seen)
		for i := range w.Blocks {
			w.Blocks[i].Holders = nil // the resource has the list
		}
		snap.Waiting = append(snap.Waiting, w)
	}
	return snap
}

func resourceStates(g *registry, seen report) []ResourceState {
	states := make([]ResourceState, 0, len(g.resources))
	for _, r := range g.resources {
		state := ResourceState{
			Name: r.name, Capacity: r.capacity, Used: r.used,
			Waiting: r.waiting, Holders: seen.holdersOf(r),
		}
		if r.reservedFor != nil {
			state.Aside = r.reservedFor.req.Run
		}
		states = append(states, state)
	}
	slices.SortFunc(states, func(a, b ResourceState) int { return strings.Compare(a.Name, b.Name) })
	return states
}

func planStates(g *registry) []PlanState {
	states := make([]PlanState, 0, len(g.plans))
	for _, p := range g.plans {
		states = append(states, PlanState{p.name, p.weight, p.paused, p.holding, p.runs - p.holding})
	}
	slices.SortFunc(states, func(a, b PlanState) int { return strings.Compare(a.Name, b.Name) })
	return states
}
