package workflow

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func listen(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, addr)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// A patient dialer waits until its server listens, here on a Unix socket.
func TestPatientDialerWaitsForItsServer(t *testing.T) {
	t.Parallel()
	addr := filepath.Join(t.TempDir(), "s")
	d := newDialer()
	if _, err := d.dial(t.Context(), "unix", addr); !errors.Is(err, syscall.ENOENT) {
		t.Fatalf("dial without patience: got %v, want ENOENT", err)
	}
	d.patient.Store(true)
	got := make(chan error, 1)
	go func() {
		c, err := d.dial(t.Context(), "unix", addr)
		if err == nil {
			err = c.Close()
		}
		got <- err
	}()
	listen(t, "unix", addr)
	must(t, <-got)
}

func TestPatientDialerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	d := newDialer()
	d.patient.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := d.dial(ctx, "tcp", "127.0.0.1:1"); err == nil {
		t.Error("the dial succeeded, want an error")
	}
}

// The timeout of a dial is not context.DeadlineExceeded, because DBOS does not try again after that error.
func TestDialTimeoutIsNotDeadlineExceeded(t *testing.T) {
	t.Parallel()
	d := newDialer()
	d.Timeout = time.Nanosecond
	var network net.Error
	if _, err := d.dial(t.Context(), "tcp", "127.0.0.1:1"); errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &network) {
		t.Errorf("got %v, want a net.Error that is not DeadlineExceeded", err)
	}
}

func TestConnectionsDetectSilenceAndBreaks(t *testing.T) {
	t.Parallel()
	l := listen(t, "tcp", "127.0.0.1:0")
	c, err := newDialer().dial(t.Context(), "tcp", l.Addr().String())
	must(t, err)
	defer c.Close()
	raw, err := c.(conn).Conn.(*net.TCPConn).SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		for option, want := range map[int]int{unix.TCP_USER_TIMEOUT: 30_000, unix.TCP_KEEPIDLE: 15, unix.TCP_KEEPINTVL: 5, unix.TCP_KEEPCNT: 3} {
			if got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option); err != nil || got != want {
				t.Errorf("option %d is %d, want %d; %v", option, got, want, err)
			}
		}
	}))
	far, err := l.Accept()
	must(t, err)
	must(t, far.Close())
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read after the server closed the connection: got %v, want ECONNRESET", err)
	}
}
