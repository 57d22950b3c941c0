package workflow

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dialTimeout is the time limit of one attempt to reach the database's port.
	dialTimeout = 5 * time.Second

	// dialPause is the pause between two attempts. The engine's own pause grows to half a minute, and no
	// run would continue for that time after an outage.
	dialPause = 250 * time.Millisecond

	// ackTimeout is how long sent bytes or probes may stay unacknowledged before the connection counts as
	// broken. The kernel of a slow database still acknowledges.
	ackTimeout    = 30 * time.Second
	probeInterval = 5 * time.Second  // time between two keep-alive probes
	probeIdle     = 15 * time.Second // idle time before the first keep-alive probe
	probeCount    = 3                // lost probes after which the connection counts as broken
)

// dialer opens the pool's connections. While it is patient, connections wait for an unreachable
// database instead of failing.
type dialer struct {
	net.Dialer
	patient atomic.Bool // wait for an unreachable database instead of failing
}

// newDialer returns a dialer that detects broken connections, and is not patient.
func newDialer() *dialer {
	return &dialer{Dialer: net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probeIdle, Interval: probeInterval, Count: probeCount},
		Control:         setUserTimeout,
	}}
}

// setUserTimeout sets TCP_USER_TIMEOUT to ackTimeout: without it, the kernel retransmits unacknowledged
// data for more than ten minutes (tcp_retries2 in tcp(7)). It does nothing for unix sockets.
func setUserTimeout(_, _ string, c syscall.RawConn) error {
	var err error
	if cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(ackTimeout.Milliseconds()))
	}); cerr != nil {
		return cerr
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOPROTOOPT) { // a socket file
		return nil
	}
	return err
}

// dial opens a connection. A patient dialer tries again until ctx ends.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for {
		c, err := d.DialContext(ctx, network, addr)
		if err == nil {
			return conn{c}, nil
		}
		if !d.patient.Load() || !sleepFor(ctx, dialPause) {
			return nil, dialError(ctx, network, err)
		}
	}
}

// dialError returns the error of a failed attempt. The driver's own timeout would pass for the end of
// the caller's context, after which the engine does not try again, so it becomes ETIMEDOUT.
func dialError(ctx context.Context, network string, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return &net.OpError{Op: "dial", Net: network, Err: syscall.ETIMEDOUT}
	}
	return err
}

// conn reports an end of a connection without a proper close, such as after the kill of a server, as a
// broken connection. The engine repeats requests after a broken connection, but it would interpret
// io.EOF within a response as the end of the response, and fail the run.
type conn struct{ net.Conn }

// Read is net.Conn.Read, with ECONNRESET in place of io.EOF.
func (c conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = &net.OpError{Op: "read", Net: "tcp", Addr: c.RemoteAddr(), Err: syscall.ECONNRESET}
	}
	return n, err
}

// sleepFor waits for d, and reports false if ctx ends first.
func sleepFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
