package oncrpc

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// A dead peer is found within keepIdle + keepCount x keepInterval. ESXi counts a datastore
// as lost after 140 s.
const (
	keepIdle     = 15 * time.Second
	keepInterval = 5 * time.Second
	keepCount    = 3
)

// tune sets what finds dead peers: keepalive where nothing is to be sent, the user timeout
// where something is. Both are advice; a socket without them still works.
func tune(nc net.Conn, stall time.Duration) {
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

// reset closes a connection without lingering.
func reset(nc net.Conn) {
	if tc, ok := nc.(*net.TCPConn); ok {
		_ = tc.SetLinger(0) // fails where it is closed already
	}
	_ = nc.Close()
}

// tcpEstablished is TCP_ESTABLISHED of the kernel's tcp_states.h.
const tcpEstablished = 1

// isEstablished reports whether neither side has closed a connection, as far as the
// kernel knows: it knows before anybody has read so far.
func isEstablished(nc net.Conn) bool {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return true
	}
	raw, err := tc.SyscallConn()
	if err != nil {
		return false
	}
	state := uint8(0)
	err = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			state = info.State
		}
	})
	return err == nil && state == tcpEstablished
}
