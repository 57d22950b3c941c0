package sched

import (
	"container/heap"
	"time"
)

// A queue contains the runs that wait, and decides which of them may begin. A decision checks only the
// resources that have changed since the last one.
type queue struct {
	patience time.Duration // how long smaller requests may pass a run before its missing units are reserved
	now      time.Time     // time of the last decision
	fresh    []*run        // runs that were added since the last decision
	dirty    dirtyHeap     // resources whose wait queues must be checked
	windows  windowQueue   // waiting runs by the next change of their windows
	version  uint64        // counts grants; a claim of an earlier version is stale
}

// addRun adds x, and counts it as waiting at all resources that it needs. The next decision places it.
func (q *queue) addRun(x *run) {
	x.state = fresh
	q.fresh = append(q.fresh, x)
	for _, n := range x.needs {
		n.res.waiting++
		n.res.backlog += x.workSeconds()
	}
}

// removeRun removes x if it waits for a resource, and sets its state. The run loses its seniority and
// its reservations.
func (q *queue) removeRun(x *run, to state) {
	was := x.state
	x.state = to
	if was != fresh && was != parked {
		return
	}
	if was == parked {
		x.dequeue()
	}
	for _, n := range x.needs {
		n.res.waiting--
		n.res.backlog -= x.workSeconds()
		if n.res.waiting == 0 {
			n.res.backlog = 0 // without rounding errors
		}
	}
	x.passedSince, x.elder, x.missed = time.Time{}, false, 0
	q.dropReservations(x)
}

// holdResources counts the resources of x as held from the time of the decision. Each call makes all
// claims stale.
func (q *queue) holdResources(x *run) {
	q.version++
	x.since, x.until = q.now, time.Time{}
	if x.req.Expected > 0 {
		x.until = q.now.Add(x.req.Expected)
	}
	x.plan.holding++
	for _, n := range x.needs {
		n.res.addHolder(x, n.weight)
	}
}

// releaseResources ends holdResources, and marks the resources of x dirty.
func (q *queue) releaseResources(x *run) {
	x.plan.holding--
	for _, n := range x.needs {
		n.res.removeHolder(x, n.weight)
		q.markDirty(n.res)
	}
}

// markDirty makes the current decision, or the next one, check the wait queue of r again. A resource
// without waiting runs is left out.
func (q *queue) markDirty(r *resource) {
	switch {
	case r.dirty.index == 0 && len(r.lanes) > 0:
		r.dirty.version = 0
		heap.Push(&q.dirty, r)
	case r.dirty.index != 0 && r.dirty.version != 0:
		r.dirty.version = 0
		heap.Fix(&q.dirty, r.dirty.index-1)
	}
}

// A dirtyEntry is a resource's entry in the dirtyHeap.
type dirtyEntry struct {
	claim
	version uint64 // queue.version when claim was computed; 0 if it was not
	index   int    // position in the heap, from 1; 0 if the resource is not in it
}

// A dirtyHeap is a heap of resources. Resources without a claim are on top, followed by the one with
// the best claim.
type dirtyHeap []*resource

// Len implements heap.Interface.
func (h dirtyHeap) Len() int { return len(h) }

// Less implements heap.Interface: a resource whose claim must be computed precedes all computed claims.
func (h dirtyHeap) Less(i, j int) bool {
	a, b := &h[i].dirty, &h[j].dirty
	if a.version == 0 || b.version == 0 {
		return a.version == 0 && b.version != 0
	}
	return a.before(b.claim)
}

// Swap implements heap.Interface, and updates the indexes of the resources.
func (h dirtyHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].dirty.index, h[j].dirty.index = i+1, j+1
}

// Push implements heap.Interface. r is a *resource.
func (h *dirtyHeap) Push(r any) {
	*h = append(*h, r.(*resource))
	r.(*resource).dirty.index = len(*h)
}

// Pop implements heap.Interface. The returned resource has index 0.
func (h *dirtyHeap) Pop() any {
	end := len(*h) - 1
	r := (*h)[end]
	*h, r.dirty.index = (*h)[:end], 0
	return r
}
