package writebehind

import (
	"slices"
	"sync/atomic"
)

// A ticket is one caller's position in a queue of the pool. Only its caller waits for it; the pool
// answers once, with the requested memory, or with nothing if the account is shut.
type ticket struct {
	ready   chan struct{} // receives the one answer; has room for it
	account *account      // account of the file that waits, for admission and windows
	class   int           // class of the requested buffer
	place   DiskOffset    // destination of the buffer
	buffer  *Buffer       // buffer to admit, or the answer
	window  []byte        // answer to a request for a window; nil if the account was shut
	ok      bool          // the buffer was admitted
}

// A waitQueue contains tickets in order of arrival. All methods but hasWaiters require the pool's mu.
type waitQueue struct {
	tickets []*ticket    // waiting tickets
	n       atomic.Int32 // number of tickets
}

// hasWaiters reports whether a caller waits.
func (l *waitQueue) hasWaiters() bool { return l.n.Load() > 0 }

// push appends a ticket.
func (l *waitQueue) push(t *ticket) {
	l.tickets = append(l.tickets, t)
	l.n.Add(1)
}

// isEmpty reports whether no caller waits.
func (l *waitQueue) isEmpty() bool { return len(l.tickets) == 0 }

// answerReady iterates over the tickets in order. serve reports whether a ticket was answered; answered ones
// leave the queue.
func (l *waitQueue) answerReady(serve func(*ticket) bool) {
	waiting := l.tickets[:0]
	for _, t := range l.tickets {
		if serve(t) {
			l.n.Add(-1)
			t.ready <- struct{}{}
			continue
		}
		waiting = append(waiting, t)
	}
	clear(l.tickets[len(waiting):])
	l.tickets = waiting
}

// remove deletes t and reports whether it was in the queue.
func (l *waitQueue) remove(t *ticket) bool {
	for i := range l.tickets {
		if l.tickets[i] == t {
			l.tickets = slices.Delete(l.tickets, i, i+1)
			l.n.Add(-1)
			return true
		}
	}
	return false
}
