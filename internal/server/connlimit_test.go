package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// addressListener is a listener whose connections have the remote addresses of from.
type addressListener struct {
	net.Listener
	from chan string
}

// addressConn is a connection with a chosen remote address.
type addressConn struct {
	net.Conn
	from   net.Addr
	closed bool
}

func (c *addressConn) RemoteAddr() net.Addr { return c.from }
func (c *addressConn) Close() error         { c.closed = true; return nil }

func (c *addressListener) Accept() (net.Conn, error) {
	from, open := <-c.from
	if !open {
		return nil, net.ErrClosed
	}
	addr, err := net.ResolveTCPAddr("tcp", from)
	return &addressConn{from: addr}, err
}

// acceptAll returns the connections that b accepts from the addresses.
func acceptAll(t *testing.T, b *limitListener, from ...string) (in []net.Conn) {
	t.Helper()
	addresses := make(chan string, len(from))
	for _, f := range from {
		addresses <- f
	}
	close(addresses)
	b.Listener = &addressListener{from: addresses}
	for {
		conn, err := b.Accept()
		if err != nil {
			return in
		}
		in = append(in, conn)
	}
}

func TestConnectionsPerAddressAreLimited(t *testing.T) {
	const most, mostOfOne = 100, 4
	many := func(format string, n int) (from []string) {
		for i := range n {
			from = append(from, fmt.Sprintf(format, i+1))
		}
		return from
	}
	for name, c := range map[string]struct {
		from []string
		want int
	}{
		"one IPv4 address":           {many("192.0.2.1:%d", 20), mostOfOne},
		"IPv4-mapped IPv6 address":   {append(many("[::ffff:192.0.2.1]:%d", 20), many("192.0.2.1:%d", 20)...), mostOfOne},
		"20 IPv4 addresses":          {many("192.0.2.%d:1", 20), 20},
		"one IPv6 /64":               {many("[2001:db8:0:1::%x]:1", 20), mostOfOne},
		"20 IPv6 /64":                {many("[2001:db8:0:%x::1]:1", 20), 20},
		"this machine":               {append(many("127.0.0.1:%d", 20), many("[::1]:%d", 20)...), 40},
		"more than the limit":        {many("127.0.0.1:%d", 2*most), most},
		"two addresses at the limit": {append(many("192.0.2.1:%d", 50), many("192.0.2.2:%d", 50)...), 2 * mostOfOne},
		"this machine and another":   {append(many("192.0.2.1:%d", 50), "127.0.0.1:1"), mostOfOne + 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLimitListener(nil, most, mostOfOne)
			for round := range 2 { // closed connections no longer count
				in := acceptAll(t, b, c.from...)
				if len(in) != c.want {
					t.Fatalf("round %d: %d of %d connections, want %d", round, len(in), len(c.from), c.want)
				}
				for _, conn := range in {
					conn.Close()
					conn.Close() // does not count
				}
				if b.open != 0 || len(b.of) != 0 {
					t.Fatalf("round %d: got a count of %d connections of %d networks, want 0", round, b.open, len(b.of))
				}
			}
		})
	}
}

// The listener closes connections of an address above its limit.
func TestConnectionsAboveTheLimitAreClosed(t *testing.T) {
	b := newLimitListener(nil, 100, 1)
	l := &addressListener{from: make(chan string, 3)}
	l.from <- "192.0.2.1:1"
	l.from <- "192.0.2.1:2"
	l.from <- "192.0.2.2:1"
	b.Listener = &recordingListener{Listener: l}
	for range 2 {
		if _, err := b.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	all := b.Listener.(*recordingListener).all
	if len(all) != 3 || all[0].closed || !all[1].closed || all[2].closed {
		t.Errorf("got connections %+v, want only the second closed", all)
	}
}

// recordingListener records the connections that it accepted.
type recordingListener struct {
	net.Listener
	all []*addressConn
}

func (r *recordingListener) Accept() (net.Conn, error) {
	conn, err := r.Listener.Accept()
	if err == nil {
		r.all = append(r.all, conn.(*addressConn))
	}
	return conn, err
}

func TestExcessConnectionsAreClosedImmediately(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newLimitListener(inner, 2, 2)
	defer l.Close()
	accepted := make(chan net.Conn, 3)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	one, two := dial(t, l), dial(t, l)
	first := <-accepted
	<-accepted
	three := dial(t, l)
	if _, err := three.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the third connection: got %v, want EOF", err)
	}
	first.Close()
	first.Close() // does not count
	four := dial(t, l)
	select {
	case <-accepted:
	case <-time.After(time.Minute):
		t.Fatal("a connection is not accepted after another closed")
	}
	five := dial(t, l)
	if _, err := five.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the fifth connection: got %v, want EOF", err)
	}
	for _, c := range []net.Conn{one, two, four} {
		c.Close()
	}
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	return conn
}
