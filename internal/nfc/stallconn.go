package nfc

import (
	"net"
	"sync/atomic"
	"time"
)

// wireBuffer is the receive buffer under TLS, in bytes. crypto/tls reads one record (16 KiB) at a time;
// with the buffer, one system call receives several.
const wireBuffer = 256 << 10

// stallConn is the connection's socket. It ends waits that take too long, and counts received bytes.
type stallConn struct {
	net.Conn
	stall    time.Duration // longest wait for a byte, or for room to send
	received atomic.Int64  // bytes received so far

	buf  []byte // receive buffer; nil before enableBuffer
	r, w int    // buf[r:w] was received and not read yet
}

// enableBuffer makes later reads receive up to wireBuffer bytes at once.
func (w *stallConn) enableBuffer() { w.buf = make([]byte, wireBuffer) }

// Read is part of net.Conn. It returns the available bytes, and fails if none arrive within the stall
// time.
func (w *stallConn) Read(p []byte) (int, error) {
	if w.r < w.w {
		n := copy(p, w.buf[w.r:w.w])
		w.r += n
		return n, nil
	}
	if len(p) >= len(w.buf) {
		return w.receive(p)
	}
	n, err := w.receive(w.buf)
	if n == 0 {
		return 0, err
	}
	w.r, w.w = copy(p, w.buf[:n]), n
	return w.r, nil // the next receive returns the error
}

// receive reads from the socket, within the stall time.
func (w *stallConn) receive(p []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(w.stall)); err != nil {
		return 0, err
	}
	n, err := w.Conn.Read(p)
	w.received.Add(int64(n))
	return n, err
}

// Write is part of net.Conn. It fails if p cannot be sent within the stall time.
func (w *stallConn) Write(p []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(w.stall)); err != nil {
		return 0, err
	}
	return w.Conn.Write(p)
}
