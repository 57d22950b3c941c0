package sched

import "time"

// A tree keeps runs in order (run.ahead) and finds the first of them that is light enough,
// both in O(log n): a treap in which every node knows the least weight below it.
type tree struct{ root *run }

type node struct {
	left, right *run
	prio        uint64
	weight      int64 // units that the run requires of the queue's resource
	least       int64 // least weight of the node and all below
}

func (t *tree) insert(x *run, weight int64) {
	x.node = node{prio: mix(x.seq), weight: weight, least: weight}
	left, right := split(t.root, x)
	t.root = merge(merge(left, x), right)
}

func (t *tree) remove(x *run) {
	t.root = without(t.root, x)
	x.node = node{}
}

// least is the least weight of all, Unlimited for none.
func (t *tree) least() int64 { return least(t.root) }

// first returns the first run of weight limit or less, nil for none.
func (t *tree) first(limit int64) *run {
	limit = min(limit, MaxWeight)
	x := t.root
	if least(x) > limit {
		return nil
	}
	for {
		switch {
		case least(x.node.left) <= limit:
			x = x.node.left
		case x.node.weight <= limit:
			return x
		default:
			x = x.node.right
		}
	}
}

// brief returns the first run that is no longer than longest, of known length, and of
// weight limit or less: in a tree that is ordered by length.
func (t *tree) brief(longest time.Duration, limit int64) *run {
	x := brief(t.root, longest, limit)
	if x == nil || x.length() == 0 {
		return nil
	}
	return x
}

func brief(x *run, longest time.Duration, limit int64) *run {
	switch {
	case least(x) > limit || x == nil:
		return nil
	case x.length() > longest:
		return brief(x.node.right, longest, limit)
	}
	if y := brief(x.node.left, longest, limit); y != nil {
		return y
	}
	if x.node.weight <= limit {
		return x
	}
	return (&tree{x.node.right}).first(limit)
}

func least(x *run) int64 {
	if x == nil {
		return Unlimited
	}
	return x.node.least
}

func (x *run) pull() {
	x.node.least = min(x.node.weight, least(x.node.left), least(x.node.right))
}

// split divides the tree at x: runs before x, and the others.
func split(x, at *run) (left, right *run) {
	if x == nil {
		return nil, nil
	}
	if x.ahead(at) {
		x.node.right, right = split(x.node.right, at)
		left = x
	} else {
		left, x.node.left = split(x.node.left, at)
		right = x
	}
	x.pull()
	return left, right
}

// merge joins two trees, of which all runs of the first precede all of the second.
func merge(left, right *run) *run {
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	case left.node.prio > right.node.prio:
		left.node.right = merge(left.node.right, right)
		left.pull()
		return left
	}
	right.node.left = merge(left, right.node.left)
	right.pull()
	return right
}

func without(x, gone *run) *run {
	switch {
	case x == nil:
		return nil
	case x == gone:
		return merge(x.node.left, x.node.right)
	case gone.ahead(x):
		x.node.left = without(x.node.left, gone)
	default:
		x.node.right = without(x.node.right, gone)
	}
	x.pull()
	return x
}

// mix spreads a counter over 64 bits (splitmix64): a treap requires priorities that are independent of
// the order. They are not random, so decisions are repeatable.
func mix(v uint64) uint64 {
	v += 0x9e3779b97f4a7c15
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}
