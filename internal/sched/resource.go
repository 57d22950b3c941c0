package sched

import (
	"math"
	"time"
)

// Unlimited is the capacity of a resource that is counted but never refuses.
const Unlimited = math.MaxInt64

// A resource is one limit: how much there is, who has it, and who waits for it.
//
// A waiting run is in the line of one of its resources only. While that resource is not
// dirty it has no room for the run, so decisions do not look at it until something is
// given back there. That is what makes a decision cost what changed, not what waits.
type resource struct {
	name     string
	capacity int64
	used     int64 // may be above capacity: a weight alone, a restored run, a lowered limit
	holders  map[*run]bool
	uses     map[*plan]*use

	waiting int     // runs that are in any line and need it
	backlog float64 // seconds of work of those

	// aside is the elder whose missing units are reserved here: other runs of its rank and below get
	// the remaining units. nil if there is none.
	reservedFor *run

	waitQueue
	dirty dirtyEntry
	now   *time.Time // time of the decision under way, or of the last one
}

// A use is what the runs of one plan have of one resource.
type use struct {
	plan  *plan
	used  [stages]int64
	lanes int
}

func (u *use) totalUnits() int64 { return u.used[First] + u.used[Again] + u.used[Cutover] }

// useOf returns p's count at r, made when it is not there.
func (r *resource) useOf(p *plan) *use {
	u := r.uses[p]
	if u == nil {
		u = &use{plan: p}
		r.uses[p] = u
	}
	return u
}

// dropUse forgets p's count when there is nothing in it.
func (r *resource) dropUse(u *use) {
	if u.totalUnits() == 0 && u.lanes == 0 {
		delete(r.uses, u.plan)
	}
}

// isClosed reports whether nothing may begin here at all.
func (r *resource) isClosed() bool { return r.capacity == 0 }

// weightLimit is the largest weight that a run of this rank may take now: everything, if
// no run has any and nothing is set aside. X is the run; nil is any run that is no elder.
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

func (r *resource) hasRoomFor(x *run, weight int64) bool {
	return weight <= r.weightLimit(x.rank(), x) || weight <= r.loanLimit(x.rank()) && x.endsBefore(r.reservedFor, *r.now)
}

// loanLimit returns the largest weight that a run of this rank may use of the reserved units, if it is
// short: the elder cannot start yet.
func (r *resource) loanLimit(rank int64) int64 {
	if y := r.reservedFor; y == nil || r.isClosed() || !y.excludesRank(rank, nil) {
		return 0
	}
	return max(0, r.capacity-r.used)
}

// addHolder and give count what a run begins and ceases to hold.
func (r *resource) addHolder(x *run, weight int64) {
	r.used += weight
	r.holders[x] = true
	r.useOf(x.plan).used[x.req.Stage] += weight
}

func (r *resource) removeHolder(x *run, weight int64) {
	r.used -= weight
	delete(r.holders, x)
	u := r.useOf(x.plan)
	u.used[x.req.Stage] -= weight
	r.dropUse(u)
}
