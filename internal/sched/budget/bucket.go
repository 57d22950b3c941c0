package budget

import (
	"container/heap"
	"time"
)

// Burst is the share of a second's rate that accumulates while no run waits: enough that a late timer
// loses nothing, and too little for a visible peak on the network.
const Burst = 50 * time.Millisecond

// Piece is the most bytes that are let through at once. It bounds what one run is ahead
// of another.
const Piece = 1 << 20

// A bucket is one budget: tokens that accumulate with time, and the runs that wait for them. It may be
// overdrawn by one piece; the next piece waits until that is repaid. So it is exact in the long run for
// pieces of any size. It has no clock; Budgets passes it the time.
type bucket struct {
	name        string
	week        Week
	rate        int64     // rate at the time of tokens
	tokens      float64   // bytes; below zero is debt
	tokensAt    time.Time // time of tokens
	virtualTime float64   // virtual time of the queue with the lowest one
	queue       queue
	runs        map[string]*account
	passed      int64 // bytes let through since ever
	seq         uint64
}

// An account is one run at one bucket.
type account struct {
	weight float64
	flows  int
	finish float64 // virtual time up to which it has been served
}

// A ticket is one piece that waits.
type ticket struct {
	bytes  int64
	start  float64 // virtual times: who finishes first is served first
	finish float64
	seq    uint64
	index  int // position in the queue; -1 if it is not queued
	pass   chan struct{}
}

// enqueuePiece queues a piece of the run's.
func (b *bucket) enqueuePiece(run string, bytes int64) *ticket {
	a := b.runs[run]
	start := max(b.virtualTime, a.finish)
	a.finish = start + float64(bytes)/a.weight
	b.seq++
	t := &ticket{bytes: bytes, start: start, finish: a.finish, seq: b.seq, pass: make(chan struct{})}
	heap.Push(&b.queue, t)
	return t
}

// removePiece takes a piece out again. Its run was not served: the account is not given back,
// which costs it one piece at most.
func (b *bucket) removePiece(t *ticket) {
	if t.index >= 0 {
		heap.Remove(&b.queue, t.index)
	}
}

// releasePieces brings the tokens up to now, a minute at a time, and releases the pieces that they cover. It
// returns the time of the next call; the zero time if no run waits.
func (b *bucket) releasePieces(now time.Time) time.Time {
	b.addTokensUntil(now)
	for len(b.queue) > 0 && (b.rate == Unlimited || b.tokens > 0) {
		t := heap.Pop(&b.queue).(*ticket)
		b.tokens -= float64(t.bytes)
		b.passed += t.bytes
		b.virtualTime = max(b.virtualTime, t.start)
		close(t.pass)
	}
	if len(b.queue) == 0 {
		return time.Time{}
	}
	return b.nextRelease(now)
}

// addTokensUntil adds the tokens since the last call, minute by minute. A clock that was set back earns nothing.
// After a day without use it starts from now: everything else would exceed the burst.
func (b *bucket) addTokensUntil(now time.Time) {
	if past := now.Add(-day * time.Minute); b.tokensAt.Before(past) {
		b.tokensAt, b.rate = past, b.week.At(past)
	}
	for b.tokensAt.Before(now) {
		until := now
		if turn := b.week.endOfMinute(b.tokensAt); turn.Before(now) {
			until = turn
		}
		b.addTokens(until.Sub(b.tokensAt))
		b.tokensAt, b.rate = until, b.week.At(until)
	}
	b.tokensAt, b.rate = now, b.week.At(now)
	b.addTokens(0)
}

// addTokens earns d at the rate of now.
func (b *bucket) addTokens(d time.Duration) {
	if b.rate == Unlimited {
		b.tokens = 0
		return
	}
	b.tokens = min(b.tokens+float64(b.rate)*d.Seconds(), float64(b.rate)*Burst.Seconds())
}

// nextRelease returns when the debt is paid, or the rate may change before that.
func (b *bucket) nextRelease(now time.Time) time.Time {
	turn := b.week.endOfMinute(now)
	if b.rate == 0 {
		return turn
	}
	wait := time.Duration((1-b.tokens)/float64(b.rate)*float64(time.Second)) + 1
	if paid := now.Add(wait); wait > 0 && paid.Before(turn) {
		return paid
	}
	return turn
}

// setWeek changes the rates from now on.
func (b *bucket) setWeek(now time.Time, w Week) {
	b.addTokensUntil(now)
	b.week, b.rate = w, w.At(now)
	b.addTokens(0)
}

// queue is a heap: the first to finish is on top.
type queue []*ticket

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].finish < q[j].finish || q[i].finish == q[j].finish && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *queue) Push(t any) {
	t.(*ticket).index = len(*q)
	*q = append(*q, t.(*ticket))
}
func (q *queue) Pop() any {
	end := len(*q) - 1
	t := (*q)[end]
	(*q)[end], *q, t.index = nil, (*q)[:end], -1
	return t
}
