package https

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// setLowWater makes c readable only when n bytes have arrived, or it was closed (SO_RCVLOWAT). The
// kernel enlarges the receive buffer if necessary. Errors are ignored.
func setLowWater(c net.Conn, n int) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n)
	})
}
