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
	// dialTimeout is for one attempt to reach the database's port.
	dialTimeout = 5 * time.Second

	// dialPause is between two attempts. The engine's own pause grows to half a minute, and no run
	// would go on for that time after an outage.
	dialPause = 250 * time.Millisecond

	// silence is how long a database may leave sent bytes or probes unacknowledged before its
	// connection is taken for cut. One that is only slow acknowledges.
	ackTimeout    = 30 * time.Second
	probeInterval = 5 * time.Second
	probeIdle     = 15 * time.Second
	probeCount    = 3
)

// dialer opens the pool's connections. While it is patient, connections wait for an unreachable
// database instead of failing.
type dialer struct {
	net.Dialer
	patient atomic.Bool
}

func newDialer() *dialer {
	return &dialer{Dialer: net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probeIdle, Interval: probeInterval, Count: probeCount},
		Control:         setUserTimeout,
	}}
}

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

// dialError returns the error of an attempt. One that timed out by itself would pass for the end of
// the caller's patience, after which the engine does not try again.
func dialError(ctx context.Context, network string, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return &net.OpError{Op: "dial", Net: network, Err: syscall.ETIMEDOUT}
	}
	return err
}

// conn reports an end of a connection without a proper close, as after the kill of a server, as a
// broken connection. The engine repeats requests after a broken connection, but it would interpret
// io.EOF within an answer as the answer, and fail the run.
type conn struct{ net.Conn }

func (c conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = &net.OpError{Op: "read", Net: "tcp", Addr: c.RemoteAddr(), Err: syscall.ECONNRESET}
	}
	return n, err
}

// sleepFor reports whether ctx lasted for d.
func sleepFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
