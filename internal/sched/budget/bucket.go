package budget

import (
	"container/heap"
	"time"
)

// Burst is the share of a second's rate that accumulates while no run waits: enough that a late timer
// loses nothing, and too little for a visible peak on the network.
const Burst = 50 * time.Millisecond

// Piece is the maximum number of bytes that pass at once. It bounds the advantage of one run
// of another.
const Piece = 1 << 20

// A bucket is one budget: tokens that accumulate with time, and the runs that wait for them. It may be
// overdrawn by one piece; the next piece waits until that is repaid. So it is exact in the long run for
// pieces of any size. It has no clock; Budgets passes it the time.
type bucket struct {
	name        string              // name of the budget, such as "link:wan"
	week        Week                // rates by the minute of the week
	rate        int64               // rate at tokensAt, in bytes per second; Unlimited sets no limit
	tokens      float64             // available bytes; below zero is debt
	tokensAt    time.Time           // time up to which tokens were added
	virtualTime float64             // start of the last ticket that was served; new tickets do not start before it
	queue       queue               // pieces that wait, the first to finish on top
	runs        map[string]*account // runs with at least one flow, by name
	passed      int64               // bytes let through since the start of the process
	seq         uint64              // number of the last ticket; it orders tickets with equal finish
}

// An account is the state of one run at one bucket.
type account struct {
	weight float64 // share relative to other runs; 1 by default
	flows  int     // flows of the run; the account is removed with the last one
	finish float64 // virtual time up to which the run has been served
}

// A ticket is one piece that waits at a bucket.
type ticket struct {
	bytes  int64         // size of the piece
	start  float64       // virtual time at which the piece starts
	finish float64       // virtual time at which the piece is done; the smallest one is served first
	seq    uint64        // order of arrival among equal finish times
	index  int           // position in the queue; -1 if it is not queued
	pass   chan struct{} // closed when the piece may pass
}

// enqueuePiece adds a piece of a run to the queue. The run must have an account. The ticket's pass is
// closed when the piece may pass.
func (b *bucket) enqueuePiece(run string, bytes int64) *ticket {
	a := b.runs[run]
	start := max(b.virtualTime, a.finish)
	a.finish = start + float64(bytes)/a.weight
	b.seq++
	t := &ticket{bytes: bytes, start: start, finish: a.finish, seq: b.seq, pass: make(chan struct{})}
	heap.Push(&b.queue, t)
	return t
}

// removePiece removes a piece from the queue. The run was not served, and its account keeps the charge,
// which costs it one piece at most.
func (b *bucket) removePiece(t *ticket) {
	if t.index >= 0 {
		heap.Remove(&b.queue, t.index)
	}
}

// releasePieces adds the tokens up to now, minute by minute, and lets the pieces through that they
// cover. It returns the time of the next call; the zero time if no run waits.
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

// addTokensUntil adds the tokens since the last call, minute by minute. A clock that was set back adds
// none. After a day without use it starts a day before now: earlier tokens would exceed the burst.
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

// addTokens adds the tokens of d at the current rate, up to the burst. An unlimited rate clears the
// debt.
func (b *bucket) addTokens(d time.Duration) {
	if b.rate == Unlimited {
		b.tokens = 0
		return
	}
	b.tokens = min(b.tokens+float64(b.rate)*d.Seconds(), float64(b.rate)*Burst.Seconds())
}

// nextRelease returns when the debt is repaid, or the end of the minute if the rate may change before
// that.
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

// setWeek changes the rates from now on. Tokens up to now are added at the old rates.
func (b *bucket) setWeek(now time.Time, w Week) {
	b.addTokensUntil(now)
	b.week, b.rate = w, w.At(now)
	b.addTokens(0)
}

// queue is a heap of tickets: the first to finish is on top.
type queue []*ticket

// Len implements heap.Interface.
func (q queue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q queue) Less(i, j int) bool {
	return q[i].finish < q[j].finish || q[i].finish == q[j].finish && q[i].seq < q[j].seq
}

// Swap implements heap.Interface, and updates the indexes of the tickets.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface. t is a *ticket.
func (q *queue) Push(t any) {
	t.(*ticket).index = len(*q)
	*q = append(*q, t.(*ticket))
}

// Pop implements heap.Interface. The returned ticket has index -1.
func (q *queue) Pop() any {
	end := len(*q) - 1
	t := (*q)[end]
	(*q)[end], *q, t.index = nil, (*q)[:end], -1
	return t
}
