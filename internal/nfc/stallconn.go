package nfc

import (
	"net"
	"sync/atomic"
	"time"
)

// wireBuffer is the receive buffer under TLS. crypto/tls reads a record (16 KiB) at a time;
// with the buffer many come with one system call.
const wireBuffer = 256 << 10

// stallConn is the connection's socket: it ends waits that take too long, and counts.
type stallConn struct {
	net.Conn
	stall    time.Duration
	received atomic.Int64 // bytes

	buf  []byte // nil until buffered is called
	r, w int    // buf[r:w] was received and not yet read
}

// enableBuffer makes later reads take much at once.
func (w *stallConn) enableBuffer() { w.buf = make([]byte, wireBuffer) }

// Read reads what there is, waiting for the first byte no longer than the stall time.
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
	return w.r, nil // an error will come again
}

func (w *stallConn) receive(p []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(w.stall)); err != nil {
		return 0, err
	}
	n, err := w.Conn.Read(p)
	w.received.Add(int64(n))
	return n, err
}

// Write writes p, waiting no longer than the stall time.
func (w *stallConn) Write(p []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(w.stall)); err != nil {
		return 0, err
	}
	return w.Conn.Write(p)
}
