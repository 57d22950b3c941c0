package oncrpc

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a TCP connection with its deadlines. All but put belongs to the reader.
type socket struct {
	net.Conn
	hello time.Time // until when something must have been said
	stall time.Duration

	spoke  bool // a whole call has come
	inside bool // a record has begun and not ended
	timed  bool // a deadline is set
	soon   bool // the next call is likely to come at once

	raw  syscall.RawConn // nil where there is none
	try  func(fd uintptr) bool
	into []byte // of the read under way, and what it gave
	n    int
	err  error
}

func newSocket(nc net.Conn, hello, stall time.Duration) *socket {
	s := &socket{Conn: nc, hello: time.Now().Add(hello), stall: stall}
	if sc, ok := nc.(syscall.Conn); ok {
		s.raw, _ = sc.SyscallConn() // without one it is read like any connection
		s.try = s.tryRead
	}
	return s
}

// Read is part of io.Reader. Time that the server takes between two reads does not count
// against the client.
func (s *socket) Read(p []byte) (int, error) {
	if err := s.await(); err != nil {
		return 0, err
	}
	if s.raw == nil || len(p) == 0 {
		return s.Conn.Read(p)
	}
	s.into, s.n, s.err = p, 0, nil
	if err := s.raw.Read(s.try); err != nil {
		return 0, err
	}
	if s.n == 0 && s.err == nil {
		return 0, io.EOF
	}
	return s.n, s.err
}

// soon is how long the next of a row of quick calls is waited for in the system, in
// milliseconds. A client with few calls in flight sends it at once, and waking this thread
// costs less than going through the scheduler, which wakes another one as well, on the
// processor that the writers need. After that the connection is left to the poller: those
// that are idle, or only knock, have no thread.
const soon = 1

// tryRead reads once, and reports whether that gave anything: bytes, the end or an error. It
// reads as package net does: the race detector orders syscall's reads and writes, and would
// not see those of x/sys/unix.
func (s *socket) tryRead(fd uintptr) bool {
	for waited := false; ; {
		n, err := syscall.Read(int(fd), s.into)
		switch {
		case err == nil:
			s.n = n
			return true
		case errors.Is(err, syscall.EINTR):
		case !errors.Is(err, syscall.EAGAIN):
			s.err = err
			return true
		case waited || !s.soon:
			s.soon = false
			return false
		default:
			poll := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			_, _ = unix.Poll(poll[:], soon) // the next read says what there is
			waited = true
		}
	}
}

func (s *socket) await() error {
	switch {
	case s.inside:
		s.timed = true
		return s.SetReadDeadline(time.Now().Add(s.stall))
	case !s.spoke:
		s.timed = true
		return s.SetReadDeadline(s.hello)
	case s.timed:
		s.timed = false
		return s.SetReadDeadline(time.Time{})
	}
	return nil
}

func (s *socket) put(p []byte) error {
	if err := s.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
		return err
	}
	_, err := s.Write(p)
	return err
}
