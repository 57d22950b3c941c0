package oncrpc

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// lull is after how long without a byte a stream rests. A host that waits for its own disk
// pauses for milliseconds; heartbeats come every ten seconds.
const streamLull = time.Second

// startStreaming takes the connection out of the poller. Where that fails it stays there, which is
// only slower.
func (s *socket) startStreaming() {
	if s.fd != noFD || s.conn == nil || !s.sending.TryLock() {
		return
	}
	defer s.sending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted {
		return
	}
	fd, ok := dupBlocking(s.conn, min(streamLull, s.stall), s.stall)
	if !ok {
		return
	}
	_ = s.conn.Close() // the connection lives on in fd
	s.conn, s.fd = nil, fd
}

func (s *socket) isStreaming() bool { return s.fd != noFD }

// stopStreaming gives the connection back to the poller, unless a reply is being sent.
func (s *socket) stopStreaming() error {
	if !s.sending.TryLock() {
		return nil
	}
	defer s.sending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted {
		return net.ErrClosed
	}
	var err error
	s.conn, err = newPolledConn(s.fd, s.stall)
	s.fd = noFD
	s.hasDeadline = true // there is no deadline, but the next read must see to it
	return err
}

// readStream reads as package net does, by the package that the race detector knows: it
// would not see that reads and writes of x/sys/unix come one after the other.
func (s *socket) readStream(p []byte) (int, error) {
	wait := min(streamLull, s.stall)
	for quiet := wait; ; {
		n, _, err := syscall.Recvfrom(s.fd, p, syscall.MSG_DONTWAIT)
		if errors.Is(err, syscall.EAGAIN) {
			s.beforeWait()
			n, err = syscall.Read(s.fd, p)
		}
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN) && s.inRecord:
			if quiet >= s.stall {
				return 0, os.ErrDeadlineExceeded
			}
			quiet += wait
		case errors.Is(err, syscall.EAGAIN):
			if err := s.stopStreaming(); err != nil {
				return 0, err
			}
			if s.fd == noFD {
				return s.Read(p)
			}
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

func (s *socket) writeStream(p []byte) error {
	for len(p) > 0 {
		n, err := syscall.Write(s.fd, p)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return os.ErrDeadlineExceeded
		case err != nil:
			return os.NewSyscallError("write", err)
		default:
			p = p[n:]
		}
	}
	return nil
}
