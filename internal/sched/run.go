package sched

import (
	"math/bits"
	"time"
)

// state is the state of a run. Decisions check only parked runs.
type state uint8

const (
	gone    state = iota // released, or not submitted yet
	fresh                // submitted since the last decision
	parked               // waiting in the queue of one resource
	shut                 // outside its windows
	stopped              // paused
	holding              // granted
)

// A run is one request, waiting or granted.
type run struct {
	req   Request   // request as submitted; its Needs are sorted by name
	needs []need    // resources of req.Needs, in the same order
	plan  *plan     // plan of the run, shared with its other runs
	home  *resource // the needed resource that the fewest runs waited for when x was placed; it groups runs in wait queues
	state state     // current state; see the constants
	seq   uint64    // order of arrival; a repeated request keeps it

	asked         time.Time // time of the first request; zero for a restored run
	since         time.Time // time of the grant; zero while the run waits
	until         time.Time // expected end after the grant; zero if unknown
	passedSince   time.Time // when the run was first passed at a resource with free units; zero if never
	elder         bool      // the run was passed for longer than the scheduler's patience
	missed        int       // how often its turn came and another resource was missing
	expectedStart time.Time // expected start of an elder, computed when it became one; zero if unknown

	at       *bucket   // bucket that it waits in; nil if it is in no wait queue
	node     node      // node of the tree in that bucket
	windowAt time.Time // next time at which mayBegin changes; zero if never
}

// A need is a Need with its resource looked up.
type need struct {
	res    *resource // required resource
	weight int64     // required units
}

// rank orders before all other keys: cutovers first, because their VMs are off, then higher priorities.
func (x *run) rank() int64 {
	if x.req.Kind == Cutover {
		return 2*maxPriority + int64(x.req.Priority)
	}
	return int64(x.req.Priority)
}

// length is the expected duration that orders runs of one plan. It is 0 for later rounds: they repeat,
// so longest first would delay the shortest of them for ever.
func (x *run) length() time.Duration {
	if x.req.Kind == First {
		return x.req.Expected
	}
	return 0
}

// isAhead reports whether x is before y within one lane. It is a total order.
func (x *run) isAhead(y *run) bool {
	switch {
	case x.elder && y.elder:
		return x.isSeniorTo(y)
	case x.length() != y.length():
		return x.length() > y.length()
	}
	return x.seq < y.seq
}

// class is the number of bits of the length in seconds: runs of one class have about the same length.
func (x *run) class() int { return bits.Len64(uint64(x.length() / time.Second)) }

// endsBefore reports whether x is expected to end before y is expected to start, so that it may use
// units that are reserved for y until then. Only runs that are ordered by length can be searched for
// this.
func (x *run) endsBefore(y *run, now time.Time) bool {
	return !x.elder && x.length() > 0 && !now.Add(x.length()).After(y.expectedStart)
}

// workSeconds is what a waiting run adds to the backlog of its resources, in seconds. A transfer of
// unknown length counts as one second.
func (x *run) workSeconds() float64 { return x.req.Expected.Seconds() + 1 }

// mayBegin reports whether now is in one of the windows of x, or x has none.
func (x *run) mayBegin(now time.Time) bool {
	for _, w := range x.req.Windows {
		if w.hasBegun(now) && !w.isOver(now) {
			return true
		}
	}
	return len(x.req.Windows) == 0
}

// nextWindowChange returns when mayBegin may change next; false if it never does.
func (x *run) nextWindowChange(now time.Time) (time.Time, bool) {
	var next time.Time
	for _, w := range x.req.Windows {
		for _, t := range []time.Time{w.From, w.To} {
			if t.After(now) && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
	}
	return next, !next.IsZero()
}

// weightOf returns the units that x needs of r; 0 if it needs none.
func (x *run) weightOf(r *resource) int64 {
	for _, n := range x.needs {
		if n.res == r {
			return n.weight
		}
	}
	return 0
}

// A plan is a set of runs that share resources fairly with the runs of other plans.
type plan struct {
	name   string  // name of the plan, unique in the scheduler
	seq    uint64  // order of creation; an older plan precedes a younger one with equal shares
	weight float64 // share relative to other plans; 1 by default
	paused bool    // no run of the plan is granted

	runs    int // runs that wait or hold resources
	holding int // runs that hold resources
}

// shareOf returns which part of a resource the plan uses, divided by its weight: 0 is nothing, 1 is all
// of it at weight 1.
func (p *plan) shareOf(used, capacity int64) float64 {
	return float64(used) / float64(max(capacity, 1)) / p.weight
}

// score is the backlog for each active run, multiplied over the resources that x needs. Runs at
// resources with much work and few active runs come first. A resource that all runs of a lane need does
// not change their order.
func (x *run) score() float64 {
	score := 1.0
	for _, n := range x.needs {
		score *= n.res.backlog / float64(len(n.res.holders)+1)
	}
	return score
}
