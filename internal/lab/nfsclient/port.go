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
	firstPort = 899
	ports     = 1023 - firstPort + 1
)

var nextPort atomic.Uint32

// dialTCP connects from port, or from any that will do if port is 0 or is taken: a
// privileged one where the process may use it.
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

func portTaken(err error) bool {
	return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL)
}

func dialFrom(ctx context.Context, addr string, port int) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{Port: port}, Control: reuseAddr}
	return d.DialContext(ctx, "tcp", addr)
}

// reuseAddr lets a source port be used again at once, as ESXi does after a reconnect.
func reuseAddr(_, _ string, c syscall.RawConn) error {
	var setErr error
	if err := c.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}); err != nil {
		return err
	}
	return setErr
}

// resetConn closes with a reset, which leaves nothing of the connection behind: neither here,
// where the port is wanted again, nor at the server.
func resetConn(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the close is what matters
	}
	_ = c.Close() // it is lost already
}

func portOf(a net.Addr) int {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}
