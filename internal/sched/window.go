package sched

import (
	"container/heap"
	"time"
)

// review puts a run that waits where it belongs: in line, or aside while it is paused or
// outside its windows.
func (s *Scheduler) review(x *run, now time.Time) {
	s.setTurn(x, now)
	switch {
	case s.paused[x.req.Run] || x.plan.paused:
		s.leave(x, stopped)
	case !x.open(now):
		s.leave(x, shut)
	case x.state != fresh && x.state != parked:
		s.enter(x)
	}
}

// A moment is when a run's windows open or close.
type moment struct {
	at  time.Time
	run *run
}

// setTurn notes when x's windows next open or close.
func (s *Scheduler) setTurn(x *run, now time.Time) {
	at, ok := x.turn(now)
	if ok && !at.Equal(x.turnAt) {
		heap.Push(&s.turns, moment{at, x})
	}
	x.turnAt = at
}

// stale reports whether nobody waits for m any more.
func (m moment) stale() bool {
	return m.run.state == gone || m.run.state == holding || !m.run.turnAt.Equal(m.at)
}

// turnWindows reviews the runs whose windows opened or closed since.
func (s *Scheduler) turnWindows() {
	for len(s.turns) > 0 && !s.turns[0].at.After(s.now) {
		m := heap.Pop(&s.turns).(moment)
		if !m.stale() {
			s.review(m.run, s.now)
		}
	}
}

// Wake returns when to call Decide although nothing changed: a window opens or closes.
// It is false when no such time is near or far.
func (s *Scheduler) Wake() (time.Time, bool) {
	for len(s.turns) > 0 && s.turns[0].stale() {
		heap.Pop(&s.turns)
	}
	if len(s.turns) == 0 {
		return time.Time{}, false
	}
	return s.turns[0].at, true
}

// turns is a heap: the next moment is on top.
type turns []moment

func (t turns) Len() int           { return len(t) }
func (t turns) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t turns) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *turns) Push(m any)        { *t = append(*t, m.(moment)) }
func (t *turns) Pop() any {
	end := len(*t) - 1
	m := (*t)[end]
	(*t)[end] = moment{}
	*t = (*t)[:end]
	return m
}
