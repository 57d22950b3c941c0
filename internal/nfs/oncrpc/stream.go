package oncrpc

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// streamLull is the time without a byte after which a stream returns to the poller. A host that waits
// for its disk pauses for milliseconds; heartbeats are ten seconds apart.
const streamLull = time.Second

// startStreaming removes the connection from the poller. If that fails, the connection stays there,
// which is only slower.
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
	_ = s.conn.Close() // the connection stays open through fd
	s.conn, s.fd = nil, fd
}

// isStreaming reports whether the connection is outside the poller.
func (s *socket) isStreaming() bool { return s.fd != noFD }

// stopStreaming returns the connection to the poller, unless a reply is being sent.
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
	s.hasDeadline = true // no deadline is set yet, but the next read must set or clear it
	return err
}

// readStream reads from the blocking descriptor. It uses package syscall like package net, because the
// race detector recognizes that reads and writes there are ordered; it would not for x/sys/unix.
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

// writeStream sends p over the blocking descriptor. sending must be held.
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
