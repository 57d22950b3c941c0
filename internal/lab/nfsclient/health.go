package nfsclient

import (
	"context"
	"sync"
	"time"
)

// health follows the heartbeats of a datastore: missed ones start the APD timer, and when
// that has run out I/O fails until one is answered.
type health struct {
	apd    time.Duration
	notify func(Event)

	mu      sync.Mutex
	missed  int         // in a row
	timer   *time.Timer // nil unless APD has started
	down    context.Context
	setDown context.CancelCauseFunc
	closed  bool
}

func newHealth(apd time.Duration, notify func(Event)) *health {
	h := &health{apd: apd, notify: notify}
	h.down, h.setDown = context.WithCancelCause(context.Background())
	return h
}

// downNow returns a context that ends when all paths are down.
func (h *health) downNow() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down
}

func (h *health) heartbeatAnswered() {
	h.mu.Lock()
	cleared := h.timer != nil
	h.missed = 0
	if cleared {
		h.timer.Stop()
		h.timer = nil
	}
	if h.down.Err() != nil && !h.closed {
		h.down, h.setDown = context.WithCancelCause(context.Background())
	}
	h.mu.Unlock()
	h.notify(Event{Kind: HeartbeatAnswered})
	if cleared {
		h.notify(Event{Kind: APDCleared})
	}
}

func (h *health) heartbeatMissed(err error) {
	h.mu.Lock()
	h.missed++
	n := h.missed
	starts := n >= apdStartCount && h.timer == nil && !h.closed
	if starts {
		h.timer = time.AfterFunc(h.apd, h.apdTimedOut)
	}
	h.mu.Unlock()
	h.notify(Event{Kind: HeartbeatMissed, Err: err, N: n})
	if starts {
		h.notify(Event{Kind: APDStarted, Err: err, N: n})
	}
}

func (h *health) apdTimedOut() {
	h.mu.Lock()
	late := h.timer == nil // a heartbeat was answered meanwhile
	if !late {
		h.setDown(ErrAPD)
	}
	h.mu.Unlock()
	if !late {
		h.notify(Event{Kind: APDTimedOut})
	}
}

// close fails everything under way.
func (h *health) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	if h.down.Err() != nil { // the reason is now another
		h.down, h.setDown = context.WithCancelCause(context.Background())
	}
	h.setDown(ErrUnmounted)
}
