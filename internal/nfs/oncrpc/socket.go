package oncrpc

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a TCP connection with its deadlines. It waits in one of two ways. An idle connection is in
// the runtime's poller and needs no thread. A connection with consecutive quick calls streams: it is
// outside the poller, which would wake a thread for every segment and acknowledgement, and its reader
// blocks in the kernel. After streamLull without a byte it returns to the poller.
//
// Read, startStreaming and close belong to the reader. writeAll requires sending. abort and
// isEstablished may be called from any goroutine.
type socket struct {
	hello time.Time     // deadline of the first call
	stall time.Duration // Options.Stall

	hadCall     bool   // a complete call was read
	beforeWait  func() // called before a streaming socket waits for bytes
	inRecord    bool   // a record has begun and not ended
	hasDeadline bool   // a read deadline is set on conn

	// sending is held while a reply is sent, so that replies do not mix. It is also held while the way of
	// waiting changes.
	sending sync.Mutex

	mu      sync.Mutex // guards the fields below against abort and isEstablished
	conn    net.Conn   // connection in the poller; nil while it streams
	fd      int        // blocking descriptor while it streams; noFD otherwise
	aborted bool       // abort was called
}

// noFD is the fd of a socket that does not stream.
const noFD = -1

// newSocket returns the socket of nc, in the poller. The first call must arrive within hello.
func newSocket(nc net.Conn, hello, stall time.Duration) *socket {
	return &socket{conn: nc, fd: noFD, hello: time.Now().Add(hello), stall: stall}
}

// Read is part of io.Reader. It fails if the client does not send in time. The time between two reads
// does not count against the client.
func (s *socket) Read(p []byte) (int, error) {
	if s.fd != noFD {
		return s.readStream(p)
	}
	if s.conn == nil {
		return 0, net.ErrClosed
	}
	if err := s.setReadDeadline(); err != nil {
		return 0, err
	}
	return s.conn.Read(p)
}

// setReadDeadline sets the deadline of the next read: Stall within a record, Hello before the first
// call, and none between two calls.
func (s *socket) setReadDeadline() error {
	switch {
	case s.inRecord:
		s.hasDeadline = true
		return s.conn.SetReadDeadline(time.Now().Add(s.stall))
	case !s.hadCall:
		s.hasDeadline = true
		return s.conn.SetReadDeadline(s.hello)
	case s.hasDeadline:
		s.hasDeadline = false
		return s.conn.SetReadDeadline(time.Time{})
	}
	return nil
}

// writeAll sends p. It fails if the client does not read for the stall time. sending must be held.
func (s *socket) writeAll(p []byte) error {
	if s.fd != noFD {
		return s.writeStream(p)
	}
	if s.conn == nil {
		return net.ErrClosed
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
		return err
	}
	_, err := s.conn.Write(p)
	return err
}

// abort ends the connection: both sides see a reset. close frees it.
func (s *socket) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted = true
	if s.fd == noFD {
		if s.conn != nil {
			resetConn(s.conn)
		}
		return
	}
	// The reader, and a goroutine that sends, may be blocked in system calls on fd. This ends
	// their wait; close frees fd.
	_ = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Shutdown(s.fd, unix.SHUT_RDWR)
}

// close frees an aborted connection. It waits for a reply that is being sent.
func (s *socket) close() {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd != noFD {
		_ = unix.Close(s.fd)
		s.fd = noFD
	}
}

// isEstablished reports whether neither side has closed the connection, by the state in the kernel,
// which has a peer's close before the reader reaches it.
func (s *socket) isEstablished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fd != noFD:
		return isEstablished(s.fd)
	case s.conn != nil:
		return connEstablished(s.conn)
	}
	return false
}
