package nfsclient

import (
	"context"
	"sync"
	"time"
)

// health follows the heartbeats of a datastore. Missed heartbeats start the APD timer; after its end
// I/O fails until a heartbeat succeeds.
type health struct {
	apd    time.Duration // duration of the APD timer
	notify func(Event)   // receives events; called without mu

	mu      sync.Mutex              // guards the fields below
	missed  int                     // missed heartbeats in a row
	timer   *time.Timer             // APD timer; nil if it was not started
	down    context.Context         // ends when all paths are down; replaced when a heartbeat succeeds
	setDown context.CancelCauseFunc // ends down with a cause
	closed  bool                    // whether the datastore is closed
}

// newHealth returns the state of a datastore whose server responds.
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

// heartbeatAnswered stops the APD timer and lets I/O proceed.
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

// heartbeatMissed counts a missed heartbeat and starts the APD timer after the third in a row.
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

// apdTimedOut fails I/O, unless a heartbeat has stopped the timer.
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

// close fails all pending calls with ErrUnmounted.
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
