package sched

import (
	"container/heap"
	"time"
)

// A windowQueue knows when the windows of runs next open or close. The zero value is empty.
type windowQueue struct{ changes windowHeap }

// A windowChange is when a window of a run opens or closes.
type windowChange struct {
	at  time.Time
	run *run
}

// noteChange notes when x's windows next open or close.
func (q *windowQueue) noteChange(x *run, now time.Time) {
	at, ok := x.nextWindowChange(now)
	if ok && !at.Equal(x.windowAt) {
		heap.Push(&q.changes, windowChange{at, x})
	}
	x.windowAt = at
}

// isStale reports whether the change does not matter any more.
func (c windowChange) isStale() bool {
	return c.run.state == gone || c.run.state == holding || !c.run.windowAt.Equal(c.at)
}

// pop removes the next change until now and returns its run, nil for none.
func (q *windowQueue) pop(now time.Time) *run {
	for len(q.changes) > 0 && !q.changes[0].at.After(now) {
		if c := heap.Pop(&q.changes).(windowChange); !c.isStale() {
			return c.run
		}
	}
	return nil
}

// nextChange returns the time of the next change, false for none.
func (q *windowQueue) nextChange() (time.Time, bool) {
	for len(q.changes) > 0 && q.changes[0].isStale() {
		heap.Pop(&q.changes)
	}
	if len(q.changes) == 0 {
		return time.Time{}, false
	}
	return q.changes[0].at, true
}

// windowHeap has the earliest change on top.
type windowHeap []windowChange

func (h windowHeap) Len() int           { return len(h) }
func (h windowHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h windowHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *windowHeap) Push(c any)        { *h = append(*h, c.(windowChange)) }
func (h *windowHeap) Pop() any {
	end := len(*h) - 1
	c := (*h)[end]
	(*h)[end] = windowChange{}
	*h = (*h)[:end]
	return c
}
