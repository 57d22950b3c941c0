package sched

import (
	"container/heap"
	"time"
)

// A Grant is one run that may begin.
type Grant struct {
	Run   string    `json:"run"`
	Plan  string    `json:"plan"`
	Needs []Need    `json:"needs"`
	Since time.Time `json:"since"`          // when it was granted
	Until time.Time `json:"until,omitzero"` // expected end; zero is unknown
	Asked time.Time `json:"asked,omitzero"` // when it was asked for
}

// Decide grants what can be granted now, in the order in which it was decided. Call it
// after any change, or after several: it looks at what changed only. Also call it when
// Wake says so. Without a change it returns nothing.
func (s *Scheduler) Decide(now time.Time) []Grant {
	s.now = now
	s.turnWindows()
	s.placeFresh()
	var grants []Grant
	for len(s.dirty) > 0 {
		if x := s.next(); x != nil && s.begin(x) {
			grants = append(grants, x.grant())
		}
	}
	return grants
}

// placeFresh puts runs that came since the last decision into the line of what they lack,
// or else of the resource that fewest wait for, which is looked at next.
func (s *Scheduler) placeFresh() {
	for _, x := range s.fresh {
		if x.state != fresh {
			continue
		}
		x.home = narrowest(x.needs)
		if r := s.blocker(x); r != nil {
			r.enqueue(x)
			continue
		}
		x.home.enqueue(x)
		s.touch(x.home)
	}
	s.fresh = nil
}

// next returns the run that stands first in all lines that changed; nil when the line
// that was looked at has nobody. Candidates only get worse while a decision is under way:
// room shrinks and shares grow. So a stale one is an upper bound, and only the one on top
// is worked out anew.
func (s *Scheduler) next() *run {
	r := s.dirty[0]
	if r.head.version == s.version {
		return r.head.run
	}
	c := s.candidate(r)
	if c.run == nil {
		heap.Remove(&s.dirty, r.head.index-1)
		return nil
	}
	r.head.claim, r.head.version = c, s.version
	heap.Fix(&s.dirty, r.head.index-1)
	return nil
}

// candidate returns who of r's line may try next. Somebody whose turn it is but who needs
// more than there is passes, until he has passed for too long.
func (s *Scheduler) candidate(r *resource) claim {
	if r.closed() {
		return claim{}
	}
	first, fit := r.choose()
	for first != nil && first != fit && r.limit(first.rank(), first) > 0 && s.pass(first) {
		first, fit = r.choose()
	}
	return claimOf(fit)
}

// begin grants x what it needs, or moves it to the line of something that it lacks.
func (s *Scheduler) begin(x *run) bool {
	s.touch(x.at.lane.at)
	if !x.open(s.now) {
		s.leave(x, shut)
		s.setTurn(x, s.now)
		return false
	}
	r := s.blocker(x)
	if r != nil && s.miss(x) {
		r = s.blocker(x)
	}
	if r != nil {
		x.dequeue()
		r.enqueue(x)
		return false
	}
	s.leave(x, holding)
	s.hold(x)
	return true
}

// hold counts x as holding what it needs from now on.
func (s *Scheduler) hold(x *run) {
	s.version++
	x.since, x.until = s.now, time.Time{}
	if x.req.Expected > 0 {
		x.until = s.now.Add(x.req.Expected)
	}
	x.plan.holding++
	for _, n := range x.needs {
		n.res.take(x, n.weight)
	}
}

func (x *run) grant() Grant {
	return Grant{Run: x.req.Run, Plan: x.req.Plan, Needs: x.held(), Since: x.since, Until: x.until, Asked: x.asked}
}

// blocker returns the resource that has no room for x; of several, the one that fewest
// wait for: it is the one whose line is looked at least in vain.
func (s *Scheduler) blocker(x *run) *resource {
	var lacking [8]need
	full := lacking[:0]
	for _, n := range x.needs {
		if !n.res.fits(x, n.weight) {
			full = append(full, n)
		}
	}
	return narrowest(full)
}

// narrowest returns the resource that fewest wait for, nil for none.
func narrowest(needs []need) *resource {
	var best *resource
	for _, n := range needs {
		if best == nil || n.res.waiting < best.waiting {
			best = n.res
		}
	}
	return best
}

// A claim is a candidate with what it is compared by. Between lines, a plan's share is
// that of the resource it waits for.
type claim struct {
	run *run
	turn
	score float64
}

func claimOf(x *run) claim {
	if x == nil {
		return claim{}
	}
	return claim{run: x, turn: x.at.lane.turn(), score: x.score()}
}

func (c claim) before(o claim) bool {
	switch {
	case c.rank != o.rank:
		return c.rank > o.rank
	case c.elder != o.elder:
		return c.elder
	case c.elder:
		return c.run.senior(o.run)
	case c.share != o.share || c.turn.stage != o.turn.stage:
		return c.turn.before(o.turn)
	case c.run.class() != o.run.class():
		return c.run.class() > o.run.class()
	case c.score != o.score:
		return c.score > o.score
	}
	return c.run.ahead(o.run)
}

// dirt is a resource's place among those to look at.
type dirt struct {
	claim
	version uint64 // of the scheduler when claim was worked out; 0 is never
	index   int    // in dirty, from 1; 0 is not there
}

// touch has the decision under way, or the next, look at r's line anew: there may be room
// that was not.
func (s *Scheduler) touch(r *resource) {
	switch {
	case r.head.index == 0 && len(r.lanes) > 0:
		r.head.version = 0
		heap.Push(&s.dirty, r)
	case r.head.index != 0 && r.head.version != 0:
		r.head.version = 0
		heap.Fix(&s.dirty, r.head.index-1)
	}
}

// dirty is a heap: those that nothing is known of first, then by claim.
type dirty []*resource

func (d dirty) Len() int { return len(d) }
func (d dirty) Less(i, j int) bool {
	a, b := &d[i].head, &d[j].head
	if a.version == 0 || b.version == 0 {
		return a.version == 0 && b.version != 0
	}
	return a.before(b.claim)
}
func (d dirty) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].head.index, d[j].head.index = i+1, j+1
}
func (d *dirty) Push(r any) {
	*d = append(*d, r.(*resource))
	r.(*resource).head.index = len(*d)
}
func (d *dirty) Pop() any {
	end := len(*d) - 1
	r := (*d)[end]
	*d, r.head.index = (*d)[:end], 0
	return r
}
