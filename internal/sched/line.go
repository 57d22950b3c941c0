package sched

// A line is the runs that wait at one resource: lanes by rank, plan and stage, in each a
// bucket for every home, in each a tree. A home is the resource that sets a run apart, as a
// rule its host or datastore. So the first that fits is found by looking at plans and homes,
// of which there are few, and not at runs, of which there are many. Elders have one lane for
// each rank, whatever their plan and home, before all others.
type line struct {
	lanes []*lane
	byKey map[laneKey]*lane
}

type laneKey struct {
	plan  *plan
	stage Stage
	rank  int64
	elder bool
}

func (x *run) laneKey() laneKey {
	if x.elder {
		return laneKey{rank: x.rank(), elder: true}
	}
	return laneKey{plan: x.plan, stage: x.req.Stage, rank: x.rank()}
}

type lane struct {
	laneKey
	at      *resource
	use     *use // nil for elders
	index   int  // in line.lanes
	buckets []*bucket
	byHome  map[*resource]*bucket
}

type bucket struct {
	lane  *lane
	home  *resource // nil for elders
	index int       // in lane.buckets
	tree  tree
}

// enqueue puts x into r's line.
func (r *resource) enqueue(x *run) {
	l := r.lane(x.laneKey())
	b := l.bucket(x.home)
	b.tree.insert(x, x.weightOf(r))
	x.at, x.state = b, parked
}

// dequeue takes x out of the line it is in.
func (x *run) dequeue() {
	b := x.at
	b.tree.remove(x)
	x.at = nil
	if b.tree.root == nil {
		b.lane.drop(b)
	}
}

func (r *resource) lane(key laneKey) *lane {
	l := r.byKey[key]
	if l != nil {
		return l
	}
	l = &lane{laneKey: key, at: r, index: len(r.lanes), byHome: map[*resource]*bucket{}}
	if !key.elder {
		l.use = r.use(key.plan)
		l.use.lanes++
	}
	r.byKey[key] = l
	r.lanes = append(r.lanes, l)
	return l
}

func (l *lane) bucket(home *resource) *bucket {
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

// drop forgets a bucket that is empty, and the lane with it if it was the last.
func (l *lane) drop(b *bucket) {
	end := len(l.buckets) - 1
	l.buckets[b.index] = l.buckets[end]
	l.buckets[b.index].index = b.index
	l.buckets = l.buckets[:end]
	delete(l.byHome, b.home)
	if end == 0 {
		l.at.remove(l)
	}
}

func (r *resource) remove(l *lane) {
	end := len(r.lanes) - 1
	r.lanes[l.index] = r.lanes[end]
	r.lanes[l.index].index = l.index
	r.lanes = r.lanes[:end]
	delete(r.byKey, l.laneKey)
	if l.use != nil {
		l.use.lanes--
		r.drop(l.use)
	}
}

// least is the least weight that anybody in the lane asks for.
func (l *lane) least() int64 {
	least := int64(Unlimited)
	for _, b := range l.buckets {
		least = min(least, b.tree.least())
	}
	return least
}

// first returns the lane's first run that is no heavier than limit, nil for none.
func (l *lane) first(limit int64) *run {
	return l.pick(func(t *tree) *run { return t.first(limit) })
}

// pick returns the first of the runs that find finds in the buckets: the longest, and of
// those that are about as long the one with the highest score.
func (l *lane) pick(find func(*tree) *run) *run {
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
		if s := x.score(); s > score || s == score && x.ahead(best) {
			best, score = x, s
		}
	}
	return best
}

// unknown is a score that was not worked out: most are not needed.
const unknown = -1.0

// A turn is what lanes go by: rank, then elders, then the plan that has the smallest share
// of what it waits for, then the stage of the plan that has the smaller one.
type turn struct {
	rank         int64
	elder        bool
	share, stage float64
	plan         uint64
}

func (l *lane) turn() turn {
	if l.elder {
		return turn{rank: l.rank, elder: true}
	}
	return turn{
		rank:  l.rank,
		share: l.plan.share(l.use.total(), l.at.capacity),
		stage: l.plan.share(l.use.used[l.laneKey.stage], l.at.capacity),
		plan:  l.plan.seq,
	}
}

func (t turn) before(o turn) bool {
	switch {
	case t.rank != o.rank:
		return t.rank > o.rank
	case t.elder != o.elder:
		return t.elder
	case t.share != o.share:
		return t.share < o.share
	case t.stage != o.stage:
		return t.stage < o.stage
	}
	return t.plan < o.plan
}

// choose returns the run whose turn it is, and the first of those that fit here: often
// the same. Either may be nil.
func (r *resource) choose() (first, fit *run) {
	var lead, fits *lane
	var leadTurn, fitsTurn turn
	for _, l := range r.lanes {
		t := l.turn()
		if lead == nil || t.before(leadTurn) {
			lead, leadTurn = l, t
		}
		if (fits == nil || t.before(fitsTurn)) && r.serves(l) {
			fits, fitsTurn = l, t
		}
	}
	if lead != nil {
		first = lead.first(MaxWeight)
	}
	if fits != nil {
		fit = r.serve(fits)
	}
	return first, r.preferAside(fit)
}

// serves reports whether there is room for anybody in the lane.
func (r *resource) serves(l *lane) bool {
	if l.elder {
		return r.serve(l) != nil
	}
	return l.least() <= r.limit(l.rank, nil) || r.lend(l) != nil
}

// serve returns the first in the lane for whom there is room, nil for none. The first of
// the elders may take what is set aside for juniors.
func (r *resource) serve(l *lane) *run {
	if l.elder {
		if x := l.first(MaxWeight); r.fits(x, x.node.weight) {
			return x
		}
	}
	if x := l.first(r.limit(l.rank, nil)); x != nil {
		return x
	}
	return r.lend(l)
}

// lend returns the first in the lane who may have what is set aside meanwhile.
func (r *resource) lend(l *lane) *run {
	limit := r.loan(l.rank)
	if limit == 0 || l.elder || l.laneKey.stage != First || !r.aside.promise.After(*r.now) {
		return nil
	}
	longest := r.aside.promise.Sub(*r.now)
	return l.pick(func(t *tree) *run { return t.brief(longest, limit) })
}

// preferAside returns the run that has something set aside here where it waits here and
// fits, unless x ranks above it.
func (r *resource) preferAside(x *run) *run {
	y := r.aside
	if y == nil || y.at == nil || y.at.lane.at != r || !r.fits(y, y.weightOf(r)) || x != nil && x.rank() > y.rank() {
		return x
	}
	return y
}
