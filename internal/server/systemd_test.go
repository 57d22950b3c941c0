package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A server that hangs does not feed the watchdog: systemd restarts it.
func TestSystemdIsToldTheTruth(t *testing.T) {
	socket := t.TempDir() + "/notify"
	told, err := net.ListenPacket("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", "")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	defer web.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- notifyAndWatch(ctx, web.Listener.Addr(), true, slog.New(slog.DiscardHandler)) }()
	if got := heard(t, told); got != "READY=1\nSTATUS=serving on "+web.Listener.Addr().String() {
		t.Errorf("told %q", got)
	}
	if got := heard(t, told); got != "WATCHDOG=1" {
		t.Errorf("told %q", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for got := heard(t, told); got != "STOPPING=1"; got = heard(t, told) {
		if got != "WATCHDOG=1" {
			t.Errorf("told %q", got)
		}
	}
}

func TestTheWatchdogIsFedOnlyByThoseWhoAnswer(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	if err := checkHealth(t.Context(), web.Listener.Addr(), true); err == nil {
		t.Error("a 502 is an answer")
	}
	web.Close()
	if err := checkHealth(t.Context(), web.Listener.Addr(), true); err == nil {
		t.Error("nobody is an answer")
	}
}

// The server reaches each kind of listener, also one that accepts only IPv4 or only IPv6.
func TestHealthIsCheckedOnEachListener(t *testing.T) {
	for network, addr := range map[string]string{"tcp": "[::]:0", "tcp4": "0.0.0.0:0", "tcp6": "[::]:0"} {
		l, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		web := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		web.Listener.Close()
		web.Listener = l
		web.Start()
		if err := checkHealth(t.Context(), l.Addr(), true); err != nil {
			t.Errorf("%s %s: %v", network, addr, err)
		}
		web.Close()
	}
}

// A server that answers its own requests with an error, or not at all, does not feed the watchdog.
func TestServerThatHangsDoesNotFeedTheWatchdog(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"an error":            func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a closed connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			socket := t.TempDir() + "/notify"
			told, err := net.ListenPacket("unixgram", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer told.Close()
			t.Setenv("NOTIFY_SOCKET", socket)
			t.Setenv("WATCHDOG_USEC", "2000")
			t.Setenv("WATCHDOG_PID", "")
			asked := make(chan bool)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case asked <- true:
				case <-ctx.Done():
				}
				answer(w, r)
			}))
			defer web.Close()
			done := make(chan error, 1)
			go func() { done <- notifyAndWatch(ctx, web.Listener.Addr(), true, slog.New(slog.DiscardHandler)) }()
			heard(t, told) // that it is ready
			for range 4 {
				<-asked
			}
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got := heard(t, told); got != "STOPPING=1" {
				t.Errorf("systemd received %q from a server that does not answer", got)
			}
		})
	}
}

func heard(t *testing.T, told net.PacketConn) string {
	t.Helper()
	_ = told.SetReadDeadline(time.Now().Add(time.Minute))
	p := make([]byte, 1024)
	n, _, err := told.ReadFrom(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(p[:n])
}
