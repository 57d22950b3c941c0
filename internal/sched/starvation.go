package sched

import "time"

// recordPass records that x was first at a resource with free units and could not begin. Once that has lasted
// for the queue's patience, x is an elder: it precedes others of its rank at all resources, and its
// missing units are reserved. It reports whether that changed anything.
//
// Units that x does not lack are not reserved: they would be idle while x waits for the others. If
// another run takes them meanwhile, x lacks them the next time, and they are reserved as well. A
// reservation holds nothing, and seniors ignore reservations for juniors, so elders cannot deadlock.
func (q *queue) recordPass(x *run) bool {
	if x.passedSince.IsZero() {
		x.passedSince = q.now
	}
	if q.now.Sub(x.passedSince) < q.patience || x.needsClosed() {
		return false
	}
	changed := x.becomeElder()
	for _, n := range x.needs {
		if !n.res.hasRoomFor(x, n.weight) && n.res.reserveFor(x) {
			changed = true
			q.markDirty(n.res)
		}
	}
	return changed
}

// maxMisses is how often a run's turn may come while another resource is missing, before that counts as
// being passed. A few misses are the ordinary way to find out which of its resources is the scarcest.
// Elders at the first miss cost 3 % of makespan on random fleets; at eight misses no cost can be
// measured.
const maxMisses = 8

// countMiss records that x has room at its wait queue and lacks another resource. It reports whether a
// reservation changed.
func (q *queue) countMiss(x *run) bool {
	x.missed++
	return x.missed > maxMisses && q.recordPass(x)
}

// becomeElder makes x an elder, and moves it to the elders' lane. It reports false if x is one already.
func (x *run) becomeElder() bool {
	if x.elder {
		return false
	}
	r := x.at.lane.at
	x.dequeue()
	x.elder, x.expectedStart = true, x.readyBy()
	r.enqueue(x)
	return true
}

// excludesRank reports whether the reservation for y excludes a run of this rank. x is the run; nil is
// any run that is not an elder.
func (y *run) excludesRank(rank int64, x *run) bool {
	return y != x && y.rank() >= rank && (x == nil || !x.elder || !x.isSeniorTo(y))
}

// needsClosed reports whether x requires a closed resource: its wait must not delay other runs.
func (x *run) needsClosed() bool {
	for _, n := range x.needs {
		if n.res.isClosed() {
			return true
		}
	}
	return false
}

// reserveFor reserves the need of x at r, unless units are reserved there for a senior. It reports
// whether that changed anything.
func (r *resource) reserveFor(x *run) bool {
	if y := r.reservedFor; y == x || y != nil && !x.isSeniorTo(y) {
		return false
	}
	r.reservedFor = x
	return true
}

// isSeniorTo reports whether x precedes y if both were passed for too long. It is a total order: the
// first run is never displaced, so each of them becomes first.
func (x *run) isSeniorTo(y *run) bool {
	switch {
	case x.rank() != y.rank():
		return x.rank() > y.rank()
	case !x.passedSince.Equal(y.passedSince):
		return x.passedSince.Before(y.passedSince)
	}
	return x.seq < y.seq
}

// dropReservations ends all reservations for x.
func (q *queue) dropReservations(x *run) {
	for _, n := range x.needs {
		if n.res.reservedFor == x {
			n.res.reservedFor = nil
			q.markDirty(n.res)
		}
	}
}

// readyBy returns when the holders of what x lacks are expected to have ended; the zero
// time if that is unknown.
func (x *run) readyBy() time.Time {
	var latest time.Time
	for _, n := range x.needs {
		if n.res.hasRoomFor(x, n.weight) {
			continue
		}
		free := n.res.freeFor(n.weight, report{}.allocationsOf(n.res))
		if free.IsZero() {
			return time.Time{}
		}
		if free.After(latest) {
			latest = free
		}
	}
	return latest
}
