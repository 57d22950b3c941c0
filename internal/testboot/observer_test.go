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

// A guest can print its marker and power itself off while decamp takes a screenshot. The console is read before the
// guest counts as stopped.
func TestConsoleIsReadBeforeShutdown(t *testing.T) {
	client, server := net.Pipe()
	w := &observer{m: &machine{}, q: &qemu{monitor: newMonitor(client, time.After), dir: t.TempDir()}, expect: regexp.MustCompile("it is up")}
	now := make(chan time.Time)
	close(now)
	w.opts = Options{Expect: "it is up", Settle: time.Hour, Now: time.Now, After: func(time.Duration) <-chan time.Time { return now }}
	w.began = time.Now()
	go func() {
		var command any
		for in := json.NewDecoder(server); in.Decode(&command) == nil; {
			w.console.append([]byte("it is up\n"))
			_, _ = server.Write([]byte(`{"event": "SHUTDOWN", "data": {"guest": true}}{"return": {}}`))
		}
	}()
	defer server.Close()
	if err := os.WriteFile(filepath.Join(w.q.dir, "screen.ppm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := w.observeOnce(t.Context()); err != nil || r.Verdict != "" {
		t.Fatalf("first call: %+v, %v", r, err)
	}
	if err := os.WriteFile(filepath.Join(w.q.dir, "screen.ppm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := w.observeOnce(t.Context()); err != nil || r.Verdict != Booted {
		t.Errorf("second call: %+v, %v", r, err)
	}
}

// A guest that powers itself off without a sign of success did not boot.
func TestPoweredOffWithoutASign(t *testing.T) {
	w := &observer{q: &qemu{}}
	if r, sure := w.judgeSigns("loading", events{stopped: true}); !sure || r.Verdict != Stopped {
		t.Errorf("got %+v, sure %v, want %s", r, sure, Stopped)
	}
}
