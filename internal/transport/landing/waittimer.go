package landing

import (
	"sync"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
)

// waitTimer measures the time in which at least one call of the host waits. The host has dozens of
// calls under way: if many of them wait together, it is still one host that waits. It is safe for
// concurrent use.
type waitTimer struct {
	mu    sync.Mutex    // guards the fields below
	calls int           // calls that wait now
	since time.Time     // time at which the first of them began to wait
	total time.Duration // time of all earlier waits
}

// begin starts the wait of one call.
func (w *waitTimer) begin(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls++; w.calls == 1 {
		w.since = now
	}
}

// end ends the wait of one call.
func (w *waitTimer) end(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls--; w.calls == 0 {
		w.total += now.Sub(w.since)
	}
}

// elapsed returns the waiting time until now.
func (w *waitTimer) elapsed(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == 0 {
		return w.total
	}
	return w.total + now.Sub(w.since)
}

// copyTimes returns the times of a landing in the form of a copy's workers. While no call of the host
// waits here, the time counts as reading: the copy waits for the host or the network.
func (c *content) copyTimes(now time.Time) blockcopy.Times {
	s := c.Stats()
	paced, stuck := c.paced.elapsed(now), c.stuck.elapsed(now)
	return blockcopy.Times{
		ReadTime: max(now.Sub(c.began)-paced-stuck, 0), PaceWait: paced, WindowWait: stuck,
		WriteTime: s.WriteTime, WriterHash: s.HashTime, Writers: s.Writers,
	}
}
