package sched

import "time"

// pass notes that x was first at a resource with room and could not begin. Once that has lasted for the queue's patience,
// x is an elder: it goes before others of its rank wherever it waits, and what it lacks is set aside for it. It reports
// whether that changed anything.
//
// What x does not lack is not set aside: it would be idle while x waits for the rest. If another run takes it in the
// meantime, x lacks it the next time, and it is set aside, too. Setting aside holds nothing, and seniors are not bound
// by what is set aside for juniors, so elders cannot deadlock.
func (q *queue) pass(x *run) bool {
	if x.due.IsZero() {
		x.due = q.now
	}
	if q.now.Sub(x.due) < q.patience || x.barred() {
		return false
	}
	changed := x.grow()
	for _, n := range x.needs {
		if !n.res.fits(x, n.weight) && n.res.setAside(x) {
			changed = true
			q.touch(n.res)
		}
	}
	return changed
}

// misses is how often a run's turn may come in vain, because it lacks something elsewhere,
// before that counts as passing. A few times are the ordinary way to find out which of its
// resources is the scarcest; elders at once cost 3 % of makespan on random fleets, at eight
// misses nothing that can be measured.
const misses = 8

// miss notes that x has room here and not elsewhere.
func (q *queue) miss(x *run) bool {
	x.missed++
	return x.missed > misses && q.pass(x)
}

// grow makes x an elder, and moves it to the elders' lane.
func (x *run) grow() bool {
	if x.elder {
		return false
	}
	r := x.at.lane.at
	x.dequeue()
	x.elder, x.promise = true, x.readyBy()
	r.enqueue(x)
	return true
}

// binds reports whether what is set aside for y is out of bounds for a run of this rank.
func (y *run) binds(rank int64, x *run) bool {
	return y != x && y.rank() >= rank && (x == nil || !x.elder || !x.senior(y))
}

// barred reports whether x needs something of which nothing is given out at all: waiting
// for it must not keep others from anything.
func (x *run) barred() bool {
	for _, n := range x.needs {
		if n.res.closed() {
			return true
		}
	}
	return false
}

// setAside sets x's need aside at r, unless something is set aside there for a senior.
func (r *resource) setAside(x *run) bool {
	if y := r.aside; y == x || y != nil && !x.senior(y) {
		return false
	}
	r.aside = x
	return true
}

// senior reports whether x goes before y where both have waited too long. It is a total
// order: the first of all is never displaced, so each of them becomes first.
func (x *run) senior(y *run) bool {
	switch {
	case x.rank() != y.rank():
		return x.rank() > y.rank()
	case !x.due.Equal(y.due):
		return x.due.Before(y.due)
	}
	return x.seq < y.seq
}

// dropReservations ends what is set aside for x.
func (q *queue) dropReservations(x *run) {
	for _, n := range x.needs {
		if n.res.aside == x {
			n.res.aside = nil
			q.touch(n.res)
		}
	}
}

// readyBy returns when the holders of what x lacks are expected to have ended; the zero
// time if that is unknown.
func (x *run) readyBy() time.Time {
	var latest time.Time
	for _, n := range x.needs {
		if n.res.fits(x, n.weight) {
			continue
		}
		free := n.res.freeFor(n.weight, report{}.holders(n.res))
		if free.IsZero() {
			return time.Time{}
		}
		if free.After(latest) {
			latest = free
		}
	}
	return latest
}
