package https

import (
	"errors"
	"net"
	"os"
	"time"
)

const (
	// wireBuffer is the read buffer under TLS. crypto/tls reads a record (16 KiB) at a
	// time; with the buffer 512 KiB come with one system call, which saves 15 to 20 % of
	// the CPU. 1 MiB gains 3 % more and costs twice the memory.
	wireBuffer = 512 << 10

	// lowWater is how many bytes must have arrived before the kernel wakes the reader. On
	// a slow wire each record would wake it otherwise: 10 to 17 % of the CPU.
	lowWater = 256 << 10

	// lowWaterSlack is more than TLS and bufio can hold of a body that was not handed out
	// yet. The low-water mark stays below what is still to come by at least that much, or
	// the last bytes would never reach it.
	lowWaterSlack = 64 << 10

	// gather is how long the low-water mark may hold back what has arrived: on a wire of
	// less than 256 KiB/s, or when the host pauses, the reader takes what there is.
	gather = time.Second
)

// stallConn is a connection's socket, below TLS.
type stallConn struct {
	net.Conn
	stall time.Duration
	tick  func(received int) // called after each read from the socket

	// expect is how many bytes of the current body were not handed out yet; 0 between
	// bodies. The reader of the body sets it.
	expect int64

	buf  []byte
	r, w int // buf[r:w] was received and not yet read
	mark int // SO_RCVLOWAT as it is set now
}

func newStallConn(c net.Conn, stall time.Duration, tick func(int)) *stallConn {
	return &stallConn{Conn: c, stall: stall, tick: tick, buf: make([]byte, wireBuffer), mark: 1}
}

// Read reads from the buffer, which it fills when it is empty. It fails when nothing
// arrives for the stall time.
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

// receive waits for mark bytes: one for the stall time, many only as long as gathering is
// worth it.
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
