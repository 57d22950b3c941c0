package sched

import (
	"math/bits"
	"time"
)

// state is where a run stands. Only parked runs are looked at by decisions.
type state uint8

const (
	gone    state = iota // released, or not asked for yet
	fresh                // asked for since the last decision
	parked               // waits at one resource
	shut                 // outside its windows
	stopped              // paused
	holding              // granted
)

// A run is one request or grant.
type run struct {
	req   Request
	needs []need
	plan  *plan
	home  *resource // the one that fewest waited for when it came into line
	state state
	seq   uint64 // order of arrival

	asked         time.Time // zero for a restored run: unknown
	since         time.Time // granted
	until         time.Time // expected end, once granted; zero is unknown
	passedSince   time.Time // first in line with room, but could not begin; zero is never
	elder         bool      // was so for longer than the scheduler's patience
	missed        int       // turns in vain
	expectedStart time.Time // when an elder was expected to begin, as it became one

	at       *bucket // its place in line
	node     node
	windowAt time.Time // when open next changes; zero is never
}

type need struct {
	res    *resource
	weight int64
}

// rank orders before all else: those whose VM is off, then by priority.
func (x *run) rank() int64 {
	if x.req.Stage == Cutover {
		return 2*maxPriority + int64(x.req.Priority)
	}
	return int64(x.req.Priority)
}

// length is what orders runs of one plan. Rounds repeat, so longest first would keep the
// shortest of them out for ever: they go as they come.
func (x *run) length() time.Duration {
	if x.req.Stage == First {
		return x.req.Expected
	}
	return 0
}

// isAhead reports whether x stands before y within one lane.
func (x *run) isAhead(y *run) bool {
	switch {
	case x.elder && y.elder:
		return x.isSeniorTo(y)
	case x.length() != y.length():
		return x.length() > y.length()
	}
	return x.seq < y.seq
}

// class is the length in octaves: runs of one class are about as long.
func (x *run) class() int { return bits.Len64(uint64(x.length() / time.Second)) }

// endsBefore reports whether x is expected to end before y is to begin, so that it may have what
// is set aside for y until then. Only what orders by length can be searched for it.
func (x *run) endsBefore(y *run, now time.Time) bool {
	return !x.elder && x.length() > 0 && !now.Add(x.length()).After(y.expectedStart)
}

// workSeconds is what a waiting run adds to the backlog of its resources, in seconds. A transfer
// of unknown length still is one.
func (x *run) workSeconds() float64 { return x.req.Expected.Seconds() + 1 }

// mayBegin reports whether the run may begin now.
func (x *run) mayBegin(now time.Time) bool {
	for _, w := range x.req.Windows {
		if w.hasBegun(now) && !w.isOver(now) {
			return true
		}
	}
	return len(x.req.Windows) == 0
}

// nextWindowChange returns when open next changes; false if it never does.
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

// weightOf returns what x needs of r.
func (x *run) weightOf(r *resource) int64 {
	for _, n := range x.needs {
		if n.res == r {
			return n.weight
		}
	}
	return 0
}

// A plan is who shares are counted for.
type plan struct {
	name   string
	seq    uint64
	weight float64
	paused bool

	runs    int // on their way or granted
	holding int
}

// shareOf is how much of a plan's claim is used up: 0 is nothing, 1 all of the resource at
// weight 1.
func (p *plan) shareOf(used, capacity int64) float64 {
	return float64(used) / float64(max(capacity, 1)) / p.weight
}

// score is how much work waits for each run that is under way, multiplied over what x
// needs: where most is left to do and least is under way comes first. What all runs of a
// line need does not change their order.
func (x *run) score() float64 {
	score := 1.0
	for _, n := range x.needs {
		score *= n.res.backlog / float64(len(n.res.holders)+1)
	}
	return score
}
