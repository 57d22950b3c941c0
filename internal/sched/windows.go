package sched

import (
	"container/heap"
	"time"
)

// A windowQueue orders runs by the next change of their windows. The zero value is empty. Stale entries
// stay until they reach the top.
type windowQueue struct{ changes windowHeap }

// A windowChange is when a window of a run opens or closes.
type windowChange struct {
	at  time.Time // time of the change
	run *run      // run whose window opens or closes
}

// noteChange records when the windows of x open or close next, after now.
func (q *windowQueue) noteChange(x *run, now time.Time) {
	at, ok := x.nextWindowChange(now)
	if ok && !at.Equal(x.windowAt) {
		heap.Push(&q.changes, windowChange{at, x})
	}
	x.windowAt = at
}

// isStale reports whether the change does not matter any more: the run began or ended, or a later
// change replaced it.
func (c windowChange) isStale() bool {
	return c.run.state == gone || c.run.state == holding || !c.run.windowAt.Equal(c.at)
}

// pop removes the first change that is not after now, and returns its run; nil if there is no such
// change.
func (q *windowQueue) pop(now time.Time) *run {
	for len(q.changes) > 0 && !q.changes[0].at.After(now) {
		if c := heap.Pop(&q.changes).(windowChange); !c.isStale() {
			return c.run
		}
	}
	return nil
}

// nextChange returns the time of the next change; false if none exists.
func (q *windowQueue) nextChange() (time.Time, bool) {
	for len(q.changes) > 0 && q.changes[0].isStale() {
		heap.Pop(&q.changes)
	}
	if len(q.changes) == 0 {
		return time.Time{}, false
	}
	return q.changes[0].at, true
}

// windowHeap is a heap with the earliest change on top.
type windowHeap []windowChange

// Len implements heap.Interface.
func (h windowHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h windowHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

// Swap implements heap.Interface.
func (h windowHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface. c is a windowChange.
func (h *windowHeap) Push(c any) { *h = append(*h, c.(windowChange)) }

// Pop implements heap.Interface.
func (h *windowHeap) Pop() any {
	end := len(*h) - 1
	c := (*h)[end]
	(*h)[end] = windowChange{}
	*h = (*h)[:end]
	return c
}
