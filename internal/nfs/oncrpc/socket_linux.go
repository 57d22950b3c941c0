package oncrpc

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A dead peer is detected within keepIdle + keepCount x keepInterval. ESXi considers a datastore
// lost after 140 s.
const (
	keepIdle     = 15 * time.Second // idle time before the first probe
	keepInterval = 5 * time.Second  // time between two probes
	keepCount    = 3                // unanswered probes that end the connection
)

// setTimeouts sets the options that detect dead peers: keepalive for an idle connection, and the user
// timeout for unacknowledged data. It ignores errors: a socket without these options still works.
func setTimeouts(nc net.Conn, stall time.Duration) {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tc.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepIdle, Interval: keepInterval, Count: keepCount})
	raw, err := tc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(stall.Milliseconds()))
	})
}

// resetConn closes a connection with a reset, without lingering.
func resetConn(nc net.Conn) {
	if tc, ok := nc.(*net.TCPConn); ok {
		_ = tc.SetLinger(0) // fails if the connection is closed already
	}
	_ = nc.Close()
}

// tcpEstablished is TCP_ESTABLISHED of the kernel's tcp_states.h.
const tcpEstablished = 1

// isEstablished reports whether a TCP socket is in the state ESTABLISHED.
func isEstablished(fd int) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && info.State == tcpEstablished
}

// connEstablished is isEstablished for a net.Conn. It returns true if nc is not TCP.
func connEstablished(nc net.Conn) (yes bool) {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return true
	}
	raw, err := tc.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { yes = isEstablished(int(fd)) })
	return err == nil && yes
}

// dupBlocking returns a blocking duplicate of a connection's descriptor, with the given timeouts. The
// caller closes nc and owns the descriptor. ok is false if nc stays in use.
func dupBlocking(nc net.Conn, read, write time.Duration) (fd int, ok bool) {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return noFD, false
	}
	raw, err := tc.SyscallConn()
	if err != nil {
		return noFD, false
	}
	if failed := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) }); failed != nil || err != nil {
		return noFD, false
	}
	r, w := unix.NsecToTimeval(read.Nanoseconds()), unix.NsecToTimeval(write.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &r),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &w),
	)
	if err == nil {
		err = unix.SetNonblock(fd, false) // changes both descriptors, so it is last
	}
	if err != nil {
		_ = unix.Close(fd)
		return noFD, false
	}
	return fd, true
}

// newPolledConn returns a connection in the poller for a blocking descriptor, which it closes.
func newPolledConn(fd int, stall time.Duration) (net.Conn, error) {
	err := unix.SetNonblock(fd, true)
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	if err != nil {
		return nil, err
	}
	nc, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	setTimeouts(nc, stall) // package net has set its own keepalive
	return nc, nil
}
