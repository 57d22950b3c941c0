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
	aside *run

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

func (u *use) total() int64 { return u.used[First] + u.used[Again] + u.used[Cutover] }

// use returns p's count at r, made when it is not there.
func (r *resource) use(p *plan) *use {
	u := r.uses[p]
	if u == nil {
		u = &use{plan: p}
		r.uses[p] = u
	}
	return u
}

// drop forgets p's count when there is nothing in it.
func (r *resource) drop(u *use) {
	if u.total() == 0 && u.lanes == 0 {
		delete(r.uses, u.plan)
	}
}

// closed reports whether nothing may begin here at all.
func (r *resource) closed() bool { return r.capacity == 0 }

// limit is the largest weight that a run of this rank may take now: everything, if
// no run has any and nothing is set aside. X is the run; nil is any run that is no elder.
func (r *resource) limit(rank int64, x *run) int64 {
	if r.closed() {
		return 0
	}
	free := r.capacity - r.used
	if y := r.aside; y != nil && y.binds(rank, x) {
		return max(0, free-min(y.weightOf(r), r.capacity))
	}
	if r.used == 0 {
		return Unlimited
	}
	return max(0, free)
}

func (r *resource) fits(x *run, weight int64) bool {
	return weight <= r.limit(x.rank(), x) || weight <= r.loan(x.rank()) && x.brief(r.aside, *r.now)
}

// loan returns the largest weight that a run of this rank may use of the reserved units, if it is
// short: the elder cannot start yet.
func (r *resource) loan(rank int64) int64 {
	if y := r.aside; y == nil || r.closed() || !y.binds(rank, nil) {
		return 0
	}
	return max(0, r.capacity-r.used)
}

// take and give count what a run begins and ceases to hold.
func (r *resource) take(x *run, weight int64) {
	r.used += weight
	r.holders[x] = true
	r.use(x.plan).used[x.req.Stage] += weight
}

func (r *resource) give(x *run, weight int64) {
	r.used -= weight
	delete(r.holders, x)
	u := r.use(x.plan)
	u.used[x.req.Stage] -= weight
	r.drop(u)
}
