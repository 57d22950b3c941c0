package main

import (
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/journal"
)

// progress shows the events of runs. handleEvent is not called concurrently. close is called once, after the
// last event.
type progress interface {
	handleEvent(journal.Event)
	close()
}

// maxQueued limits the events that wait until an output that is not read accepts them.
const maxQueued = 4096

// An eventQueue shows events in its own goroutine. A run therefore continues if its output blocks: a pipe
// that is full and not read, a stopped terminal. If the queue is full, progress is dropped first. The
// number of other events that are dropped is reported.
type eventQueue struct {
	shown    progress       // display of the events
	lost     func(n int)    // reports n dropped events other than progress
	patience time.Duration  // maxPatience; tests set another one
	ended    sync.WaitGroup // the goroutine

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

// newEventQueue returns a queue before shown.
func newEventQueue(shown progress, lost func(n int)) *eventQueue {
	q := &eventQueue{shown: shown, lost: lost, patience: maxPatience}
	q.filled = sync.NewCond(&q.mu)
	q.ended.Go(q.showAll)
	return q
}

// handleEvent implements progress. It waits until e is shown, but not longer than patience.
func (q *eventQueue) handleEvent(e journal.Event) {
	shown, wait := q.add(e)
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

// add adds an event. wait reports that the caller should wait for shown: the output accepts events.
func (q *eventQueue) add(e journal.Event) (shown <-chan struct{}, wait bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= maxQueued && !q.makeRoom(e) {
		return nil, false
	}
	item := queuedEvent{e, make(chan struct{})}
	q.waiting = append(q.waiting, item)
	q.filled.Signal()
	return item.done, !q.stalled
}

// makeRoom drops the oldest progress that waits. Without one it reports false: e is dropped. mu must be held.
func (q *eventQueue) makeRoom(e journal.Event) bool {
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
func (q *eventQueue) showAll() {
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
		q.shown.handleEvent(next.Event)
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
func (q *eventQueue) reportLost() {
	n := q.dropped
	if q.dropped = 0; n == 0 {
		return
	}
	q.mu.Unlock()
	q.lost(n)
	q.mu.Lock()
}

// close implements progress. It returns when all events are shown.
func (q *eventQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.filled.Signal()
	q.mu.Unlock()
	q.ended.Wait()
	q.shown.close()
}
