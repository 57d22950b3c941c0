package systemd

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWatchdogIntervalIsHalfOfTheLimit(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	for env, want := range map[string]time.Duration{"": 0, "x": 0, "0": 0, "30000000": 15 * time.Second} {
		t.Setenv("WATCHDOG_USEC", env)
		t.Setenv("WATCHDOG_PID", "")
		if got := WatchdogInterval(); got != want {
			t.Errorf("%q: the interval is %s, want %s", env, got, want)
		}
	}
	t.Setenv("WATCHDOG_PID", "1")
	if got := WatchdogInterval(); got != 0 {
		t.Errorf("the watchdog of another process is notified every %s", got)
	}
	t.Setenv("WATCHDOG_PID", "")
	t.Setenv("NOTIFY_SOCKET", "")
	if got := WatchdogInterval(); got != 0 {
		t.Errorf("without a socket the interval is %s", got)
	}
}

func TestNotifySendsTheState(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify("READY=1"); err != nil {
		t.Errorf("without systemd: %v", err)
	}
	socket := filepath.Join(t.TempDir(), "notify")
	t.Setenv("NOTIFY_SOCKET", socket)
	if err := Notify("READY=1"); err == nil {
		t.Error("Notify without the socket file succeeds")
	}
	l, err := net.ListenPacket("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := Notify("READY=1"); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 100)
	n, _, err := l.ReadFrom(text)
	if err != nil || string(text[:n]) != "READY=1" {
		t.Errorf("systemd received %q: %v", text[:n], err)
	}
}

// When finish returns after the end of the context, the stop has been reported: the process may exit. A service that
// ends for another reason does not report a stop.
func TestFinishWaitsUntilTheStopIsReported(t *testing.T) {
	for _, stopped := range []bool{true, false} {
		socket := filepath.Join(t.TempDir(), "notify")
		t.Setenv("NOTIFY_SOCKET", socket)
		l, err := net.ListenPacket("unixgram", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, stop := context.WithCancel(t.Context())
		finish, err := Announce(ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		if stopped {
			stop()
		}
		finish()
		stop()
		want := []string{"READY=1\nSTATUS=s", "STOPPING=1"}
		if !stopped {
			want = want[:1]
		}
		if err := Notify("END"); err != nil {
			t.Fatal(err)
		}
		for _, state := range append(want, "END") {
			text := make([]byte, 100)
			n, _, err := l.ReadFrom(text)
			if err != nil || string(text[:n]) != state {
				t.Errorf("stopped %v: systemd received %q, want %q: %v", stopped, text[:n], state, err)
			}
		}
	}
}

// listenerEnv makes the test program report its listener and end.
const listenerEnv = "TEST_SYSTEMD_LISTENER"

func TestMain(m *testing.M) {
	if os.Getenv(listenerEnv) != "" {
		l, err := Listener()
		switch {
		case err != nil:
			println(err.Error())
		case l == nil:
			println("none")
		default:
			println(l.Addr().String())
		}
		return
	}
	os.Exit(m.Run())
}

// A process accepts the socket that systemd opened for it, not one for another process.
func TestListenerIsTheSocketOfSystemd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for env, want := range map[string]string{
		"LISTEN_PID=$$ LISTEN_FDS=1": l.Addr().String(), "LISTEN_PID=1 LISTEN_FDS=1": "none", "LISTEN_PID=$$": "none",
		"LISTEN_PID=$$ LISTEN_FDS=2": "systemd passes 2 sockets, want 1: a socket unit with one ListenStream",
	} {
		cmd := exec.Command("/bin/sh", "-c", env+" exec "+os.Args[0])
		cmd.Env, cmd.ExtraFiles = append(os.Environ(), listenerEnv+"=1"), []*os.File{f}
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: the listener is %q, want %q: %v", env, out, want, err)
		}
	}
}

func TestCredentialIsAFileOfTheService(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fleet.key"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	credential := func(name string) string { return Credential(func(key string) string { return env[key] }, name) }
	if got := credential("fleet.key"); got != "" {
		t.Errorf("outside of a service the credential is %q", got)
	}
	env["CREDENTIALS_DIRECTORY"] = dir
	if got := credential("fleet.key"); got != filepath.Join(dir, "fleet.key") {
		t.Errorf("the credential is %q", got)
	}
	if got := credential("access.yaml"); got != "" {
		t.Errorf("a missing credential is %q", got)
	}
}
