package sched

import (
	"container/heap"
	"time"
)

// A queue has the runs that wait, and decides which of them may begin. It looks only at resources where something
// has changed.
type queue struct {
	patience time.Duration
	now      time.Time // time of the last decision
	fresh    []*run    // runs that came since the last decision
	dirty    dirtyHeap // resources whose wait queues have to be looked at
	windows  windowQueue
	version  uint64 // counts grants: claims that were worked out before are stale
}

// addRun adds x: the next decision looks at it.
func (q *queue) addRun(x *run) {
	x.state = fresh
	q.fresh = append(q.fresh, x)
	for _, n := range x.needs {
		n.res.waiting++
		n.res.backlog += x.workSeconds()
	}
}

// removeRun removes x if it waits for a resource, and leaves it in state to.
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

// holdResources counts the resources of x as held from now on.
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

// releaseResources ends hold.
func (q *queue) releaseResources(x *run) {
	x.plan.holding--
	for _, n := range x.needs {
		n.res.removeHolder(x, n.weight)
		q.markDirty(n.res)
	}
}

// markDirty makes the decision under way, or the next one, look at r's wait queue again: there may be room.
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
	version uint64 // version of the queue when claim was worked out; 0 is never
	index   int    // position in the heap, from 1; 0 if it is not in it
}

// A dirtyHeap has the resources without a claim on top, then those with the first claim.
type dirtyHeap []*resource

func (h dirtyHeap) Len() int { return len(h) }
func (h dirtyHeap) Less(i, j int) bool {
	a, b := &h[i].dirty, &h[j].dirty
	if a.version == 0 || b.version == 0 {
		return a.version == 0 && b.version != 0
	}
	return a.before(b.claim)
}
func (h dirtyHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].dirty.index, h[j].dirty.index = i+1, j+1
}
func (h *dirtyHeap) Push(r any) {
	*h = append(*h, r.(*resource))
	r.(*resource).dirty.index = len(*h)
}
func (h *dirtyHeap) Pop() any {
	end := len(*h) - 1
	r := (*h)[end]
	*h, r.dirty.index = (*h)[:end], 0
	return r
}
