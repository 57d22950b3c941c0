// Package eventqueue shows the events of runs without blocking the runs.
package eventqueue

import (
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/journal"
)

// MaxQueued limits the events that wait until an output that is not read accepts them.
const MaxQueued = 4096

// A Queue shows events in its own goroutine. A run therefore continues if its output blocks: a pipe
// that is full and not read, a stopped terminal. If the queue is full, progress is dropped first. The
// number of other events that are dropped is reported.
type Queue struct {
	show     func(journal.Event) // shows an event; never called concurrently
	end      func()              // ends the display
	lost     func(n int)         // reports n dropped events other than progress
	patience time.Duration       // maxPatience; SetPatience sets another one
	ended    sync.WaitGroup      // the goroutine

	mu      sync.Mutex    // guards the fields below
	filled  *sync.Cond    // signals a change of waiting and closed
	waiting []queuedEvent // events that are not shown yet, the oldest first
	stalled bool          // the output exceeded patience, and events have been queued since then
	dropped int           // dropped events that lost has not reported
	closed  bool          // no event follows
}

// A queuedEvent is an event that waits to be shown.
type queuedEvent struct {
	journal.Event
	done chan struct{} // closed when the event is shown
}

// New returns a queue before a display, which shows events with show. end is called after the last event.
func New(show func(journal.Event), end func(), lost func(n int)) *Queue {
	q := &Queue{show: show, end: end, lost: lost, patience: maxPatience}
	q.filled = sync.NewCond(&q.mu)
	q.ended.Go(q.showAll)
	return q
}

// SetPatience sets the time that Add waits, before the first event.
func (q *Queue) SetPatience(d time.Duration) { q.patience = d }

// Add queues an event, and waits until it is shown, but not longer than patience. It is not called
// concurrently.
func (q *Queue) Add(e journal.Event) {
	shown, wait := q.enqueue(e)
	if !wait {
		return
	}
	limit := time.NewTimer(q.patience)
	defer limit.Stop()
	select {
	case <-shown:
	case <-limit.C:
		q.mu.Lock()
		q.stalled = len(q.waiting) > 0
		q.mu.Unlock()
	}
}

// enqueue adds an event. wait reports that the caller should wait for shown: the output accepts events.
func (q *Queue) enqueue(e journal.Event) (shown <-chan struct{}, wait bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= MaxQueued && !q.makeRoom(e) {
		return nil, false
	}
	item := queuedEvent{e, make(chan struct{})}
	q.waiting = append(q.waiting, item)
	q.filled.Signal()
	return item.done, !q.stalled
}

// makeRoom drops the oldest progress that waits. Without one it reports false: e is dropped. mu must be held.
func (q *Queue) makeRoom(e journal.Event) bool {
	// The first event is being shown.
	i := 1 + slices.IndexFunc(q.waiting[1:], func(w queuedEvent) bool { return w.Kind == journal.Progressed })
	if i > 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return true
	}
	if e.Kind != journal.Progressed {
		q.dropped++
	}
	return false
}

// showAll shows the events until close.
func (q *Queue) showAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.waiting) == 0 && !q.closed {
			q.filled.Wait()
		}
		if len(q.waiting) == 0 {
			return
		}
		next := q.waiting[0]
		q.mu.Unlock()
		q.show(next.Event)
		close(next.done)
		q.mu.Lock()
		q.waiting = q.waiting[1:]
		if len(q.waiting) == 0 {
			q.stalled = false
			q.reportLost()
		}
	}
}

// reportLost reports the dropped events, if there are any. mu must be held; it is released meanwhile.
func (q *Queue) reportLost() {
	n := q.dropped
	if q.dropped = 0; n == 0 {
		return
	}
	q.mu.Unlock()
	q.lost(n)
	q.mu.Lock()
}

// Close returns when all events are shown, and the display has ended.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.filled.Signal()
	q.mu.Unlock()
	q.ended.Wait()
	q.end()
}
