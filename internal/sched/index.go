package sched

import "time"

// resource returns the resource of that name, made when it is not there. Without a
// capacity it is closed.
func (s *Scheduler) resource(name string) *resource {
	r := s.resources[name]
	if r == nil {
		r = &resource{
			name:    name,
			holders: map[*run]bool{},
			uses:    map[*plan]*use{},
			now:     &s.now,
			line:    line{byKey: map[laneKey]*lane{}},
		}
		s.resources[name] = r
	}
	return r
}

func (s *Scheduler) plan(name string) *plan {
	p := s.plans[name]
	if p == nil {
		s.seq++
		p = &plan{name: name, seq: s.seq, weight: 1}
		s.plans[name] = p
	}
	return p
}

// tidy forgets a plan of which nothing is left: thousands come and go in a server's life.
func (s *Scheduler) tidy(p *plan) {
	if p.runs == 0 && !p.paused && p.weight == 1 {
		delete(s.plans, p.name)
	}
}

// enter has x stand in line from the next decision on.
func (s *Scheduler) enter(x *run) {
	x.state = fresh
	s.fresh = append(s.fresh, x)
	for _, n := range x.needs {
		n.res.waiting++
		n.res.backlog += x.work()
	}
}

// leave takes x out of line, if it is in one, and leaves it in state to.
func (s *Scheduler) leave(x *run, to state) {
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
		n.res.backlog -= x.work()
		if n.res.waiting == 0 {
			n.res.backlog = 0 // not what rounding left
		}
	}
	x.due, x.elder, x.missed = time.Time{}, false, 0
	s.letGo(x)
}
