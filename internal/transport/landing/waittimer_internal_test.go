package landing

import (
	"testing"
	"time"
)

// The waits of concurrent calls count once.
func TestConcurrentWaitsCountOnce(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var w waitTimer
	w.begin(at(10))
	w.begin(at(11))
	w.end(at(13))
	if got := w.elapsed(at(14)); got != 4*time.Second {
		t.Errorf("elapsed while one call waits: %v, want 4s", got)
	}
	w.end(at(15))
	w.begin(at(20))
	w.end(at(21))
	if got := w.elapsed(at(30)); got != 6*time.Second {
		t.Errorf("elapsed after all calls: %v, want 6s", got)
	}
}
