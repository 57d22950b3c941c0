package https

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// stallConnPair returns a stallConn and the other end of its TCP connection.
func stallConnPair(t *testing.T, stall time.Duration) (*stallConn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return newStallConn(near, stall, func(int) {}), far
}

// Read returns bytes that have arrived even if the rest of the body never arrives: the low-water mark may only
// delay them.
func TestLowWaterDeliversPartialData(t *testing.T) {
	w, far := stallConnPair(t, 50*time.Millisecond)
	w.expect = 10 << 20
	if _, err := far.Write([]byte("little")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, err := w.Read(b)
	if err != nil || string(b[:n]) != "little" {
		t.Errorf("got %q, error %v, want %q", b[:n], err, "little")
	}
	if _, err := w.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v from a stalled connection, want ErrDeadlineExceeded", err)
	}
}

func TestLowWaterDeliversEOF(t *testing.T) {
	w, far := stallConnPair(t, time.Minute)
	w.expect = 10 << 20
	if _, err := far.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	far.Close()
	n, err := io.Copy(io.Discard, w)
	if n != 1000 || err != nil {
		t.Errorf("got %d bytes, error %v, want 1000", n, err)
	}
}
