package https

import (
	"errors"
	"net"
	"os"
	"time"
)

const (
	// wireBuffer is the read buffer under TLS, in bytes. crypto/tls reads one record (16 KiB) at a time;
	// with the buffer, one system call receives 512 KiB, which saves 15 to 20 % of the CPU time. 1 MiB
	// saves 3 % more and needs twice the memory.
	wireBuffer = 512 << 10

	// lowWater is the number of bytes from which the kernel wakes the reader. On a slow network each
	// record would wake it otherwise, which costs 10 to 17 % of the CPU time.
	lowWater = 256 << 10

	// lowWaterSlack is more than the bytes of a body that TLS and bufio can buffer. The low-water mark
	// stays below the remaining bytes by at least that much: otherwise the last bytes would never reach
	// it.
	lowWaterSlack = 64 << 10

	// gather is the longest time in which the low-water mark delays received bytes. If the network has
	// less than 256 KiB/s, or the host pauses, the reader continues with fewer bytes.
	gather = time.Second
)

// stallConn is a connection's socket, below TLS. Only one goroutine may read.
type stallConn struct {
	net.Conn
	stall time.Duration      // longest wait for a byte
	tick  func(received int) // called with the number of bytes after each read from the socket

	// expect is the number of bytes of the current body that were not read yet; 0 between bodies. The
	// reader of the body sets it.
	expect int64

	buf  []byte // receive buffer
	r, w int    // buf[r:w] was received and not read yet
	mark int    // current SO_RCVLOWAT of the socket
}

// newStallConn returns the socket of c. tick must not be nil.
func newStallConn(c net.Conn, stall time.Duration, tick func(int)) *stallConn {
	return &stallConn{Conn: c, stall: stall, tick: tick, buf: make([]byte, wireBuffer), mark: 1}
}

// Read is part of net.Conn. It reads from the buffer, and fills that if it is empty. It fails if
// nothing arrives for the stall time.
func (w *stallConn) Read(p []byte) (int, error) {
	if w.r == w.w {
		if err := w.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, w.buf[w.r:w.w])
	w.r += n
	return n, nil
}

// fill receives bytes into the empty buffer: many at once if the body is long enough.
func (w *stallConn) fill() error {
	mark := 1
	if w.expect-lowWaterSlack >= lowWater {
		mark = lowWater
	}
	n, err := w.receive(mark)
	if mark > 1 && errors.Is(err, os.ErrDeadlineExceeded) {
		n, err = w.receive(1)
	}
	w.r, w.w = 0, n
	w.tick(n)
	if n > 0 {
		return nil
	}
	return err
}

// receive waits for mark bytes and reads. It waits for the stall time for one byte, and for gather for
// many.
func (w *stallConn) receive(mark int) (int, error) {
	patience := w.stall
	if mark > 1 {
		patience = min(gather, patience)
	}
	if mark != w.mark {
		setLowWater(w.Conn, mark)
		w.mark = mark
	}
	if err := w.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return w.Conn.Read(w.buf)
}
