package sched

import (
	"container/heap"
	"time"
)

// A Grant is one run that may begin. The run holds its resources until Scheduler.Release.
type Grant struct {
	Run       string    `json:"run"`                // run that may begin its transfer
	Plan      string    `json:"plan"`               // plan whose share the grant counts to
	Needs     []Need    `json:"needs"`              // resources that the run holds from now on, sorted by name
	Since     time.Time `json:"since"`              // time of the decision that granted it
	Until     time.Time `json:"until,omitzero"`     // expected end of the transfer; zero if unknown
	Requested time.Time `json:"requested,omitzero"` // time of the first request; zero for a restored run
}

// decideGrants returns the possible grants in the order of the decisions. It returns when no changed
// wait queue has a candidate that fits.
func (q *queue) decideGrants() []Grant {
	q.placeFresh()
	var grants []Grant
	for len(q.dirty) > 0 {
		if x := q.nextCandidate(); x != nil && q.tryBegin(x) {
			grants = append(grants, x.toGrant())
		}
	}
	return grants
}

// placeFresh moves the runs that were added since the last decision into a wait queue. A run waits at a
// resource that it lacks. A run that lacks nothing waits at the resource that the fewest runs wait for,
// and that resource is marked dirty.
func (q *queue) placeFresh() {
	for _, x := range q.fresh {
		if x.state != fresh {
			continue
		}
		x.home = leastContended(x.needs)
		if r := missingResource(x); r != nil {
			r.enqueue(x)
			continue
		}
		x.home.enqueue(x)
		q.markDirty(x.home)
	}
	q.fresh = nil
}

// nextCandidate returns the first candidate of all changed wait queues; nil if it only computed one again.
// Candidates only get worse during a decision: free capacity shrinks and shares grow. So a stale one is
// an upper bound, and only the top one must be computed again.
func (q *queue) nextCandidate() *run {
	r := q.dirty[0]
	if r.dirty.version == q.version {
		return r.dirty.run
	}
	c := q.findCandidate(r)
	if c.run == nil {
		heap.Remove(&q.dirty, r.dirty.index-1)
		return nil
	}
	r.dirty.claim, r.dirty.version = c, q.version
	heap.Fix(&q.dirty, r.dirty.index-1)
	return nil
}

// findCandidate returns the run of r's wait queue that may try next. A run that is first but needs more than there is is
// passed, until it has been passed for too long.
func (q *queue) findCandidate(r *resource) claim {
	if r.isClosed() {
		return claim{}
	}
	first, fit := r.chooseRuns()
	for first != nil && first != fit && r.weightLimit(first.rank(), first) > 0 && q.recordPass(first) {
		first, fit = r.chooseRuns()
	}
	return claimOf(fit)
}

// tryBegin grants x its resources and reports true. If x may not begin, it moves x to the wait queue of
// a missing resource, or removes x from the queue if x is outside its windows.
func (q *queue) tryBegin(x *run) bool {
	q.markDirty(x.at.lane.at)
	if !x.mayBegin(q.now) {
		q.removeRun(x, shut)
		q.windows.noteChange(x, q.now)
		return false
	}
	r := missingResource(x)
	if r != nil && q.countMiss(x) {
		r = missingResource(x)
	}
	if r != nil {
		x.dequeue()
		r.enqueue(x)
		return false
	}
	q.removeRun(x, holding)
	q.holdResources(x)
	return true
}

// toGrant returns the grant of a run that has just begun. The caller owns its Needs.
func (x *run) toGrant() Grant {
	return Grant{Run: x.req.Run, Plan: x.req.Plan, Needs: x.heldNeeds(), Since: x.since, Until: x.until, Requested: x.asked}
}

// missingResource returns the resource that has no room for x; nil if x may begin. Of several it
// returns the one that the fewest runs wait for, because its wait queue is checked least often in vain.
func missingResource(x *run) *resource {
	var lacking [8]need
	full := lacking[:0]
	for _, n := range x.needs {
		if !n.res.hasRoomFor(x, n.weight) {
			full = append(full, n)
		}
	}
	return leastContended(full)
}

// leastContended returns the resource that the fewest runs wait for, nil for none.
func leastContended(needs []need) *resource {
	var best *resource
	for _, n := range needs {
		if best == nil || n.res.waiting < best.waiting {
			best = n.res
		}
	}
	return best
}

// A claim is a candidate with its sort keys. Between wait queues, a plan's share is that of the
// resource that the candidate waits for.
type claim struct {
	run *run // candidate of the wait queue; nil if no run fits
	precedence
	score float64 // run.score at the time of the computation
}

// claimOf returns the claim of x at the wait queue where x is; the zero claim for nil.
func claimOf(x *run) claim {
	if x == nil {
		return claim{}
	}
	return claim{run: x, precedence: x.at.lane.currentPrecedence(), score: x.score()}
}

// before reports whether c is decided before o: by rank, then elders by seniority, then the plan's
// share, the length class, the score, and the order within a lane.
func (c claim) before(o claim) bool {
	switch {
	case c.rank != o.rank:
		return c.rank > o.rank
	case c.elder != o.elder:
		return c.elder
	case c.elder:
		return c.run.isSeniorTo(o.run)
	case c.share != o.share || c.precedence.stage != o.precedence.stage:
		return c.precedence.before(o.precedence)
	case c.run.class() != o.run.class():
		return c.run.class() > o.run.class()
	case c.score != o.score:
		return c.score > o.score
	}
	return c.run.isAhead(o.run)
}
