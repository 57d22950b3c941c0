package landing

import (
	"testing"
	"time"
)

// Calls that wait side by side are one host that waits.
func TestWaitingCountsTimeAndNotCalls(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var w waitTimer
	w.begin(at(10))
	w.begin(at(11))
	w.end(at(13))
	if got := w.elapsed(at(14)); got != 4*time.Second {
		t.Errorf("while one waits still: %v", got)
	}
	w.end(at(15))
	w.begin(at(20))
	w.end(at(21))
	if got := w.elapsed(at(30)); got != 6*time.Second {
		t.Errorf("in the end: %v", got)
	}
}
