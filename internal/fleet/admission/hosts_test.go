package admission

import (
	"log/slog"
	"testing"
	"time"
)

// Each rest of a host is twice as long as the one before, up to longestRest. A host that keeps failing rests
// for longestRest each time.
func TestHostPauseGrowsToLimit(t *testing.T) {
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	hh := newHostHealth(Options{Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	for range failuresInARow - 1 {
		hh.recordFailure("esx1", "no route")
	}
	want := firstRest
	for i := range 100 {
		if !hh.recordFailure("esx1", "no route") {
			t.Fatalf("rest %d does not begin", i+1)
		}
		until := hh.hosts["esx1"].Until
		if got := until.Sub(now); got != want {
			t.Fatalf("rest %d lasts %v, want %v", i+1, got, want)
		}
		now, want = until, min(2*want, longestRest)
		hh.recordBegin("esx1") // the trial, which fails at once
	}
	if want != 10*time.Minute {
		t.Errorf("the longest rest is %v, want 10 min", want)
	}
	if !hh.recordSuccess("esx1") {
		t.Fatal("the host has no failures")
	}
	for range failuresInARow {
		hh.recordFailure("esx1", "no route")
	}
	if got := hh.hosts["esx1"].Until.Sub(now); got != firstRest {
		t.Errorf("the first rest after a success lasts %v, want %v", got, firstRest)
	}
}
