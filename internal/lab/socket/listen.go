package socket

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// patience limits how long Listen and WaitClosed retry.
const patience = 5 * time.Second

// Listen listens at a TCP address whose listener was just closed. It retries while the port is in use:
// a child process has a copy of every socket between fork and exec, and thereby keeps a closed listener
// open for a while.
func Listen(addr string) (net.Listener, error) {
	for late := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		l, err := net.Listen("tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(late) {
			return l, err
		}
	}
}

// WaitClosed waits until connections to addr, whose listener was just closed, fail, or until patience is
// over. The kernel accepts connections while a child process has a copy of the listener.
func WaitClosed(addr string) {
	for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(time.Millisecond) {
		c, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			return
		}
		c.Close()
	}
}
