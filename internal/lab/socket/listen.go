package socket

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// patience is the time that a closed port may still be in use.
const patience = 5 * time.Second

// Listen listens at a TCP address again that was listened at until now. A process that is being
// started has a copy of every socket from fork to exec, on a busy machine for a while: a listener that
// was closed in between listens until then, and its port is in use.
func Listen(addr string) (net.Listener, error) {
	for late := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		l, err := net.Listen("tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(late) {
			return l, err
		}
	}
}
