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

// The server notifies systemd when it is ready, when it is healthy and when it stops.
func TestSystemdIsNotifiedOfState(t *testing.T) {
	socket := t.TempDir() + "/notify"
	systemd, err := net.ListenPacket("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", "")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	defer web.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- notifyAndWatch(ctx, web.Listener.Addr(), true, slog.New(slog.DiscardHandler)) }()
	if got := readNotification(t, systemd); got != "READY=1\nSTATUS=serving on "+web.Listener.Addr().String() {
		t.Errorf("systemd received %q", got)
	}
	if got := readNotification(t, systemd); got != "WATCHDOG=1" {
		t.Errorf("systemd received %q", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for got := readNotification(t, systemd); got != "STOPPING=1"; got = readNotification(t, systemd) {
		if got != "WATCHDOG=1" {
			t.Errorf("systemd received %q", got)
		}
	}
}

func TestHealthCheckRequiresSuccess(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	if err := checkHealth(t.Context(), web.Listener.Addr(), true); err == nil {
		t.Error("a server that responds with 502 is healthy")
	}
	web.Close()
	if err := checkHealth(t.Context(), web.Listener.Addr(), true); err == nil {
		t.Error("a server that does not listen is healthy")
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
func TestUnhealthyServerDoesNotFeedWatchdog(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"an error":            func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a closed connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			socket := t.TempDir() + "/notify"
			systemd, err := net.ListenPacket("unixgram", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer systemd.Close()
			t.Setenv("NOTIFY_SOCKET", socket)
			t.Setenv("WATCHDOG_USEC", "2000")
			t.Setenv("WATCHDOG_PID", "")
			requests := make(chan bool)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case requests <- true:
				case <-ctx.Done():
				}
				answer(w, r)
			}))
			defer web.Close()
			done := make(chan error, 1)
			go func() { done <- notifyAndWatch(ctx, web.Listener.Addr(), true, slog.New(slog.DiscardHandler)) }()
			readNotification(t, systemd) // READY=1
			for range 4 {
				<-requests
			}
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got := readNotification(t, systemd); got != "STOPPING=1" {
				t.Errorf("systemd received %q from a server that does not answer", got)
			}
		})
	}
}

func readNotification(t *testing.T, socket net.PacketConn) string {
	t.Helper()
	_ = socket.SetReadDeadline(time.Now().Add(time.Minute))
	p := make([]byte, 1024)
	n, _, err := socket.ReadFrom(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(p[:n])
}
