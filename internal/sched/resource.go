package sched

import (
	"math"
	"time"
)

// Unlimited is the capacity of a resource that is counted and never refuses.
const Unlimited = math.MaxInt64

// A resource is one limit, with its holders and the runs that wait for it.
//
// A waiting run is in the wait queue of one of its resources only. While that resource is not
// dirty, it has no room for the run, so decisions do not check it until units are
// released there. Therefore the cost of a decision depends on the changes, and not on the waiting runs.
type resource struct {
	name     string         // name from SetCapacity, such as "host:esx3/vms"
	capacity int64          // units of the resource; 0 is closed
	used     int64          // may be above capacity: a weight alone, a restored run, a lowered limit
	holders  map[*run]bool  // runs that hold units
	uses     map[*plan]*use // use by plan; only plans with units or lanes

	waiting int     // waiting runs that need the resource, at whichever resource they wait
	backlog float64 // work of those runs, in seconds

	// reservedFor is the elder whose missing units are reserved here: other runs of its rank and below get the remaining
	// units. nil if no units are reserved.
	reservedFor *run

	waitQueue
	dirty dirtyEntry // entry in queue.dirty
	now   *time.Time // time of the current decision, or of the last one; shared with the queue
}

// A use is what the runs of one plan hold of one resource.
type use struct {
	plan  *plan                // plan of the runs
	used  [transferKinds]int64 // units by TransferKind
	lanes int                  // lanes of the plan in the wait queue
}

// totalUnits returns the units of all stages.
func (u *use) totalUnits() int64 { return u.used[First] + u.used[Again] + u.used[Cutover] }

// useOf returns the use of p at r. It adds an empty one if none exists.
func (r *resource) useOf(p *plan) *use {
	u := r.uses[p]
	if u == nil {
		u = &use{plan: p}
		r.uses[p] = u
	}
	return u
}

// dropUse removes u if it has neither units nor lanes.
func (r *resource) dropUse(u *use) {
	if u.totalUnits() == 0 && u.lanes == 0 {
		delete(r.uses, u.plan)
	}
}

// isClosed reports whether no run may begin at r.
func (r *resource) isClosed() bool { return r.capacity == 0 }

// weightLimit returns the largest weight that a run of this rank may get now. It is Unlimited if no run
// holds units and none are reserved. x is the run; nil is any run that is not an elder.
func (r *resource) weightLimit(rank int64, x *run) int64 {
	if r.isClosed() {
		return 0
	}
	free := r.capacity - r.used
	if y := r.reservedFor; y != nil && y.excludesRank(rank, x) {
		return max(0, free-min(y.weightOf(r), r.capacity))
	}
	if r.used == 0 {
		return Unlimited
	}
	return max(0, free)
}

// hasRoomFor reports whether x may get weight units now: free units, or reserved units for a short run.
func (r *resource) hasRoomFor(x *run, weight int64) bool {
	return weight <= r.weightLimit(x.rank(), x) || weight <= r.loanLimit(x.rank()) && x.endsBefore(r.reservedFor, *r.now)
}

// loanLimit returns the largest weight of reserved units that a short run of this rank may use
// meanwhile. It is 0 if no units are reserved against that rank.
func (r *resource) loanLimit(rank int64) int64 {
	if y := r.reservedFor; y == nil || r.isClosed() || !y.excludesRank(rank, nil) {
		return 0
	}
	return max(0, r.capacity-r.used)
}

// addHolder counts weight units as held by x.
func (r *resource) addHolder(x *run, weight int64) {
	r.used += weight
	r.holders[x] = true
	r.useOf(x.plan).used[x.req.Kind] += weight
}

// removeHolder ends addHolder with the same weight.
func (r *resource) removeHolder(x *run, weight int64) {
	r.used -= weight
	delete(r.holders, x)
	u := r.useOf(x.plan)
	u.used[x.req.Kind] -= weight
	r.dropUse(u)
}
