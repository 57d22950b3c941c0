package sched

// A waitQueue contains the runs that wait at one resource: lanes by rank, plan and stage, in each lane
// a bucket for each home, in each bucket a tree. A home is the resource that distinguishes a run,
// usually its host or datastore. Therefore a decision finds the first run that fits by checking plans
// and homes, which are few, and not runs, which are many. Elders have one lane for each rank,
// regardless of plan and home, before all others.
type waitQueue struct {
	lanes []*lane           // lanes with waiting runs, in no order
	byKey map[laneKey]*lane // the same lanes by key
}

// A laneKey identifies a lane of a wait queue.
type laneKey struct {
	plan  *plan        // plan of the runs; nil for elders
	kind  TransferKind // stage of the runs; First for elders, whose stage does not matter
	rank  int64        // run.rank of the runs
	elder bool         // lane of the elders of that rank
}

// laneKey returns the key of the lane that x waits in.
func (x *run) laneKey() laneKey {
	if x.elder {
		return laneKey{rank: x.rank(), elder: true}
	}
	return laneKey{plan: x.plan, kind: x.req.Kind, rank: x.rank()}
}

// A lane contains the waiting runs of one key at one resource.
type lane struct {
	laneKey
	at      *resource             // resource of the wait queue
	use     *use                  // use of the plan; nil for elders
	index   int                   // position in waitQueue.lanes
	buckets []*bucket             // non-empty buckets, in no order
	byHome  map[*resource]*bucket // the same buckets by home
}

// A bucket contains the runs of one lane with the same home.
type bucket struct {
	lane  *lane     // lane that contains the bucket
	home  *resource // home of the bucket; nil for elders
	index int       // position in lane.buckets
	tree  tree      // runs of the bucket
}

// enqueue adds x to r's wait queue.
func (r *resource) enqueue(x *run) {
	l := r.laneFor(x.laneKey())
	b := l.bucketFor(x.home)
	b.tree.insert(x, x.weightOf(r))
	x.at, x.state = b, parked
}

// dequeue removes x from its wait queue.
func (x *run) dequeue() {
	b := x.at
	b.tree.remove(x)
	x.at = nil
	if b.tree.root == nil {
		b.lane.dropBucket(b)
	}
}

// laneFor returns the lane of a key. It adds an empty lane if none exists, and counts it in the plan's
// use.
func (r *resource) laneFor(key laneKey) *lane {
	l := r.byKey[key]
	if l != nil {
		return l
	}
	l = &lane{laneKey: key, at: r, index: len(r.lanes), byHome: map[*resource]*bucket{}}
	if !key.elder {
		l.use = r.useOf(key.plan)
		l.use.lanes++
	}
	r.byKey[key] = l
	r.lanes = append(r.lanes, l)
	return l
}

// bucketFor returns the bucket of a home; elders have one bucket for all homes. It adds an empty bucket
// if none exists.
func (l *lane) bucketFor(home *resource) *bucket {
	if l.elder {
		home = nil
	}
	b := l.byHome[home]
	if b == nil {
		b = &bucket{lane: l, home: home, index: len(l.buckets)}
		l.byHome[home] = b
		l.buckets = append(l.buckets, b)
	}
	return b
}

// dropBucket removes an empty bucket, and the lane if it has no other bucket.
func (l *lane) dropBucket(b *bucket) {
	end := len(l.buckets) - 1
	l.buckets[b.index] = l.buckets[end]
	l.buckets[b.index].index = b.index
	l.buckets = l.buckets[:end]
	delete(l.byHome, b.home)
	if end == 0 {
		l.at.removeLane(l)
	}
}

// removeLane removes an empty lane, and the plan's use of r if it is empty, too.
func (r *resource) removeLane(l *lane) {
	end := len(r.lanes) - 1
	r.lanes[l.index] = r.lanes[end]
	r.lanes[l.index].index = l.index
	r.lanes = r.lanes[:end]
	delete(r.byKey, l.laneKey)
	if l.use != nil {
		l.use.lanes--
		r.dropUse(l.use)
	}
}

// leastWeight returns the least weight that a run in the lane needs.
func (l *lane) leastWeight() int64 {
	least := int64(Unlimited)
	for _, b := range l.buckets {
		least = min(least, b.tree.leastWeight())
	}
	return least
}

// firstWithin returns the lane's first run whose weight is at most limit; nil if there is no such run.
func (l *lane) firstWithin(limit int64) *run {
	return l.pickRun(func(t *tree) *run { return t.firstWithin(limit) })
}

// pickRun returns the first of the runs that find returns for the buckets: a run of the longest class,
// and of those the one with the highest score.
func (l *lane) pickRun(find func(*tree) *run) *run {
	var best *run
	score := unknown
	for _, b := range l.buckets {
		x := find(&b.tree)
		if x == nil || best != nil && x.class() < best.class() {
			continue
		}
		if best == nil || x.class() > best.class() {
			best, score = x, unknown
			continue
		}
		if score == unknown {
			score = best.score()
		}
		if s := x.score(); s > score || s == score && x.isAhead(best) {
			best, score = x, s
		}
	}
	return best
}

// unknown is a score that was not computed: most scores are not needed.
const unknown = -1.0

// A precedence orders lanes by rank, elders, the plan's share of the resource, and the share of the
// stage within the plan.
type precedence struct {
	rank         int64   // run.rank of the lane; higher ranks are first
	elder        bool    // lane of elders
	share, stage float64 // units in use by the plan, and by its stage, divided by capacity and weight; 0 for elders
	plan         uint64  // plan.seq; older plans are first
}

// currentPrecedence returns the precedence of the lane by the use at this moment. Each grant and
// release changes it.
func (l *lane) currentPrecedence() precedence {
	if l.elder {
		return precedence{rank: l.rank, elder: true}
	}
	return precedence{
		rank:  l.rank,
		share: l.plan.shareOf(l.use.totalUnits(), l.at.capacity),
		stage: l.plan.shareOf(l.use.used[l.laneKey.kind], l.at.capacity),
		plan:  l.plan.seq,
	}
}

// before reports whether the lane of p precedes the lane of o.
func (p precedence) before(o precedence) bool {
	switch {
	case p.rank != o.rank:
		return p.rank > o.rank
	case p.elder != o.elder:
		return p.elder
	case p.share != o.share:
		return p.share < o.share
	case p.stage != o.stage:
		return p.stage < o.stage
	}
	return p.plan < o.plan
}

// chooseRuns returns the run that is first, and the first run that fits. They are often the same.
// Either may be nil.
func (r *resource) chooseRuns() (first, fit *run) {
	var lead, fits *lane
	var leadAt, fitsAt precedence
	for _, l := range r.lanes {
		t := l.currentPrecedence()
		if lead == nil || t.before(leadAt) {
			lead, leadAt = l, t
		}
		if (fits == nil || t.before(fitsAt)) && r.canServe(l) {
			fits, fitsAt = l, t
		}
	}
	if lead != nil {
		first = lead.firstWithin(MaxWeight)
	}
	if fits != nil {
		fit = r.firstFitting(fits)
	}
	return first, r.preferReserved(fit)
}

// canServe reports whether r has room for a run of the lane.
func (r *resource) canServe(l *lane) bool {
	if l.elder {
		return r.firstFitting(l) != nil
	}
	return l.leastWeight() <= r.weightLimit(l.rank, nil) || r.firstLoan(l) != nil
}

// firstFitting returns the first run of the lane that fits; nil if none does. The first elder may use
// reservations for juniors.
func (r *resource) firstFitting(l *lane) *run {
	if l.elder {
		if x := l.firstWithin(MaxWeight); r.hasRoomFor(x, x.node.weight) {
			return x
		}
	}
	if x := l.firstWithin(r.weightLimit(l.rank, nil)); x != nil {
		return x
	}
	return r.firstLoan(l)
}

// firstLoan returns the first run of the lane that may use reserved units meanwhile; nil if there is
// none. Only first copies are lent units: later rounds have no known length.
func (r *resource) firstLoan(l *lane) *run {
	limit := r.loanLimit(l.rank)
	if limit == 0 || l.elder || l.laneKey.kind != First || !r.reservedFor.expectedStart.After(*r.now) {
		return nil
	}
	longest := r.reservedFor.expectedStart.Sub(*r.now)
	return l.pickRun(func(t *tree) *run { return t.firstShort(longest, limit) })
}

// preferReserved returns the run that units are reserved for if it waits here and fits, unless x has a
// higher rank; else x.
func (r *resource) preferReserved(x *run) *run {
	y := r.reservedFor
	if y == nil || y.at == nil || y.at.lane.at != r || !r.hasRoomFor(y, y.weightOf(r)) || x != nil && x.rank() > y.rank() {
		return x
	}
	return y
}
