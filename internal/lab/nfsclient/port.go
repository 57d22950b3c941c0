package nfsclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Source ports of ESXi are privileged; 899 to 909 have been seen.
const (
	firstPort = 899                  // first local port to try
	ports     = 1023 - firstPort + 1 // number of local ports to try
)

// nextPort is a counter that spreads connections over the ports.
var nextPort atomic.Uint32

// dialTCP connects from the given local port. If the port is 0 or in use, it tries the privileged
// ports, and an unprivileged one if the process may not bind them.
func dialTCP(ctx context.Context, addr string, port int) (net.Conn, error) {
	if port != 0 {
		if c, err := dialFrom(ctx, addr, port); !portTaken(err) {
			return c, err
		}
	}
	for range ports {
		port := firstPort + int(nextPort.Add(1)-1)%ports
		c, err := dialFrom(ctx, addr, port)
		if errors.Is(err, os.ErrPermission) {
			return dialFrom(ctx, addr, 0)
		}
		if !portTaken(err) {
			return c, err
		}
	}
	return nil, fmt.Errorf("dial %s: no privileged port is free", addr)
}

// portTaken reports whether the local port is in use.
func portTaken(err error) bool {
	return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL)
}

// dialFrom connects from a local port; 0 is any port.
func dialFrom(ctx context.Context, addr string, port int) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{Port: port}, Control: reuseAddr}
	return d.DialContext(ctx, "tcp", addr)
}

// reuseAddr allows immediate reuse of a local port, which ESXi uses again after a reconnect.
func reuseAddr(_, _ string, c syscall.RawConn) error {
	var setErr error
	if err := c.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}); err != nil {
		return err
	}
	return setErr
}

// resetConn closes a connection with a TCP reset. The local port is then free at once, without
// TIME_WAIT, at both ends.
func resetConn(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the close is what matters
	}
	_ = c.Close() // an error changes nothing: the connection is lost
}

// portOf returns the port of a TCP address; 0 for other addresses.
func portOf(a net.Addr) int {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}
