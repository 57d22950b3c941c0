package sched

import "time"

// A tree keeps runs in order (run.isAhead) and finds the first run within a weight limit, both in O(log
// n). It is a treap in which each node contains the least weight of its subtree.
type tree struct{ root *run }

// A node is the part of a run that its tree uses.
type node struct {
	left, right *run   // subtrees: the runs before and after this one; nil if empty
	prio        uint64 // heap priority, from mixPriority
	weight      int64  // units that the run requires of the queue's resource
	least       int64  // least weight in the subtree, this node included
}

// insert adds x, which must be in no tree. weight is what x needs of the queue's resource.
func (t *tree) insert(x *run, weight int64) {
	x.node = node{prio: mixPriority(x.seq), weight: weight, least: weight}
	left, right := splitTree(t.root, x)
	t.root = mergeTrees(mergeTrees(left, x), right)
}

// remove removes x. Its sort keys must be the same as at insert.
func (t *tree) remove(x *run) {
	t.root = removeNode(t.root, x)
	x.node = node{}
}

// leastWeight returns the least weight of all runs; Unlimited if the tree is empty.
func (t *tree) leastWeight() int64 { return leastWeightOf(t.root) }

// firstWithin returns the first run whose weight is at most limit; nil if there is no such run.
func (t *tree) firstWithin(limit int64) *run {
	limit = min(limit, MaxWeight)
	x := t.root
	if leastWeightOf(x) > limit {
		return nil
	}
	for {
		switch {
		case leastWeightOf(x.node.left) <= limit:
			x = x.node.left
		case x.node.weight <= limit:
			return x
		default:
			x = x.node.right
		}
	}
}

// firstShort returns the first run whose length is known and at most longest, and whose weight is at
// most limit. The tree must be ordered by length.
func (t *tree) firstShort(longest time.Duration, limit int64) *run {
	x := findShort(t.root, longest, limit)
	if x == nil || x.length() == 0 {
		return nil
	}
	return x
}

// findShort is firstShort for the subtree x, including runs of unknown length.
func findShort(x *run, longest time.Duration, limit int64) *run {
	switch {
	case leastWeightOf(x) > limit || x == nil:
		return nil
	case x.length() > longest:
		return findShort(x.node.right, longest, limit)
	}
	if y := findShort(x.node.left, longest, limit); y != nil {
		return y
	}
	if x.node.weight <= limit {
		return x
	}
	return (&tree{x.node.right}).firstWithin(limit)
}

// leastWeightOf returns the least weight of a subtree; Unlimited for nil.
func leastWeightOf(x *run) int64 {
	if x == nil {
		return Unlimited
	}
	return x.node.least
}

// updateLeast computes node.least after a change of a subtree.
func (x *run) updateLeast() {
	x.node.least = min(x.node.weight, leastWeightOf(x.node.left), leastWeightOf(x.node.right))
}

// splitTree splits the subtree x at the position of a run: the runs before at, and the others.
func splitTree(x, at *run) (left, right *run) {
	if x == nil {
		return nil, nil
	}
	if x.isAhead(at) {
		x.node.right, right = splitTree(x.node.right, at)
		left = x
	} else {
		left, x.node.left = splitTree(x.node.left, at)
		right = x
	}
	x.updateLeast()
	return left, right
}

// mergeTrees joins two trees. All runs of left must precede all runs of right.
func mergeTrees(left, right *run) *run {
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	case left.node.prio > right.node.prio:
		left.node.right = mergeTrees(left.node.right, right)
		left.updateLeast()
		return left
	}
	right.node.left = mergeTrees(left, right.node.left)
	right.updateLeast()
	return right
}

// removeNode returns the subtree x without the run gone. It follows the order of the runs, so gone must
// be in it.
func removeNode(x, gone *run) *run {
	switch {
	case x == nil:
		return nil
	case x == gone:
		return mergeTrees(x.node.left, x.node.right)
	case gone.isAhead(x):
		x.node.left = removeNode(x.node.left, gone)
	default:
		x.node.right = removeNode(x.node.right, gone)
	}
	x.updateLeast()
	return x
}

// mixPriority spreads a counter over 64 bits (splitmix64). A treap requires priorities that are
// independent of the order. They are not random, so decisions are repeatable.
func mixPriority(v uint64) uint64 {
	v += 0x9e3779b97f4a7c15
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}
