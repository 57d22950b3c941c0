package writebehind

import (
	"slices"
	"sync/atomic"
)

// A ticket is one caller's position in a queue of the pool. Only its caller waits for it; the pool
// answers once, with the requested memory, or with nothing if the account is shut.
type ticket struct {
	ready   chan struct{} // room for the one answer
	account *account
	class   int     // class of the requested buffer
	place   Place   // destination of the buffer
	buffer  *Buffer // buffer to admit, or the answer
	window  []byte
	ok      bool // admitted
}

// A line is tickets in the order they came. All but long needs the pool's mu.
type waitQueue struct {
	tickets []*ticket
	n       atomic.Int32 // number of tickets
}

// hasWaiters reports whether a caller waits.
func (l *waitQueue) hasWaiters() bool { return l.n.Load() > 0 }

func (l *waitQueue) push(t *ticket) {
	l.tickets = append(l.tickets, t)
	l.n.Add(1)
}

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

// remove takes t off the line and reports whether it was still there.
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
