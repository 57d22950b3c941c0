package landing

import (
	"sync"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
)

// waiting adds up for how long at least one call of the host waited for the same thing. The host has
// dozens under way: that many of them wait together is still one host that waits.
type waitTimer struct {
	mu    sync.Mutex
	calls int
	since time.Time // the first of those began to
	total time.Duration
}

func (w *waitTimer) begin(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls++; w.calls == 1 {
		w.since = now
	}
}

func (w *waitTimer) end(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls--; w.calls == 0 {
		w.total += now.Sub(w.since)
	}
}

// elapsed is the time until now.
func (w *waitTimer) elapsed(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == 0 {
		return w.total
	}
	return w.total + now.Sub(w.since)
}

// copyTimes says of a landing what a copy's workers would: while no call of the host waits here, it is
// the host that is waited for, or the way from there.
func (c *content) copyTimes(now time.Time) blockcopy.Times {
	s := c.Stats()
	paced, stuck := c.paced.elapsed(now), c.stuck.elapsed(now)
	return blockcopy.Times{
		ReadTime: max(now.Sub(c.began)-paced-stuck, 0), PaceWait: paced, WindowWait: stuck,
		WriteTime: s.WriteTime, WriterHash: s.HashTime, Writers: s.Writers,
	}
}
