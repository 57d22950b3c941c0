package testboot

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// A guest may print that it is up and power itself off while its screen is being looked at.
func TestLastWordsAreReadFirst(t *testing.T) {
	ours, theirs := net.Pipe()
	w := &observer{m: &machine{}, q: &qemu{monitor: newMonitor(ours, time.After), dir: t.TempDir()}, expect: regexp.MustCompile("it is up")}
	now := make(chan time.Time)
	close(now)
	w.opts = Options{Expect: "it is up", Settle: time.Hour, Now: time.Now, After: func(time.Duration) <-chan time.Time { return now }}
	w.began = time.Now()
	go func() {
		var command any
		for in := json.NewDecoder(theirs); in.Decode(&command) == nil; {
			w.console.append([]byte("it is up\n"))
			_, _ = theirs.Write([]byte(`{"event": "SHUTDOWN", "data": {"guest": true}}{"return": {}}`))
		}
	}()
	defer theirs.Close()
	if err := os.WriteFile(filepath.Join(w.q.dir, "screen.ppm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := w.observeOnce(t.Context()); err != nil || r.Verdict != "" {
		t.Fatalf("at once: %+v, %v", r, err)
	}
	if err := os.WriteFile(filepath.Join(w.q.dir, "screen.ppm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := w.observeOnce(t.Context()); err != nil || r.Verdict != Booted {
		t.Errorf("then: %+v, %v", r, err)
	}
}

// One that powers itself off without a sign did not boot.
func TestPoweredOffWithoutASign(t *testing.T) {
	w := &observer{q: &qemu{}}
	if r, sure := w.judgeSigns("loading", events{stopped: true}); !sure || r.Verdict != Stopped {
		t.Errorf("%+v, %v", r, sure)
	}
}
