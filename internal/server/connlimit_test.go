package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// callers is a listener whose connections come from addresses that a test chooses.
type callers struct {
	net.Listener
	from chan string
}

// caller is a connection; closed reports that the listener closed it.
type caller struct {
	net.Conn
	from   net.Addr
	closed bool
}

func (c *caller) RemoteAddr() net.Addr { return c.from }
func (c *caller) Close() error         { c.closed = true; return nil }

func (c *callers) Accept() (net.Conn, error) {
	from, open := <-c.from
	if !open {
		return nil, net.ErrClosed
	}
	addr, err := net.ResolveTCPAddr("tcp", from)
	return &caller{from: addr}, err
}

// accepted returns the connections that a bounded listener lets in.
func accepted(t *testing.T, b *limitListener, from ...string) (in []net.Conn) {
	t.Helper()
	calls := make(chan string, len(from))
	for _, f := range from {
		calls <- f
	}
	close(calls)
	b.Listener = &callers{from: calls}
	for {
		conn, err := b.Accept()
		if err != nil {
			return in
		}
		in = append(in, conn)
	}
}

func TestOneAddressDoesNotHoldAllConnections(t *testing.T) {
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
		"one IPv4 address":             {many("192.0.2.1:%d", 20), mostOfOne},
		"it, as IPv6 writes it":        {append(many("[::ffff:192.0.2.1]:%d", 20), many("192.0.2.1:%d", 20)...), mostOfOne},
		"20 IPv4 addresses":            {many("192.0.2.%d:1", 20), 20},
		"one IPv6 /64":                 {many("[2001:db8:0:1::%x]:1", 20), mostOfOne},
		"20 IPv6 /64":                  {many("[2001:db8:0:%x::1]:1", 20), 20},
		"this machine":                 {append(many("127.0.0.1:%d", 20), many("[::1]:%d", 20)...), 40},
		"more than there is room for":  {many("127.0.0.1:%d", 2*most), most},
		"two that want all they can":   {append(many("192.0.2.1:%d", 50), many("192.0.2.2:%d", 50)...), 2 * mostOfOne},
		"this machine beside somebody": {append(many("192.0.2.1:%d", 50), "127.0.0.1:1"), mostOfOne + 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLimitListener(nil, most, mostOfOne)
			for round := range 2 { // what is closed is given back
				in := accepted(t, b, c.from...)
				if len(in) != c.want {
					t.Fatalf("round %d: %d of %d connections, want %d", round, len(in), len(c.from), c.want)
				}
				for _, conn := range in {
					conn.Close()
					conn.Close() // counts once
				}
				if b.open != 0 || len(b.of) != 0 {
					t.Fatalf("round %d: %d connections of %d networks are counted, none is open", round, b.open, len(b.of))
				}
			}
		})
	}
}

// User connects when there is no room is hung up on.
func TestConnectionsThatAreTooManyAreClosed(t *testing.T) {
	b := newLimitListener(nil, 100, 1)
	l := &callers{from: make(chan string, 3)}
	l.from <- "192.0.2.1:1"
	l.from <- "192.0.2.1:2"
	l.from <- "192.0.2.2:1"
	b.Listener = &remembering{Listener: l}
	for range 2 {
		if _, err := b.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	all := b.Listener.(*remembering).all
	if len(all) != 3 || all[0].closed || !all[1].closed || all[2].closed {
		t.Errorf("connections %+v, want the second one closed", all)
	}
}

// remembering keeps the connections that it accepted.
type remembering struct {
	net.Listener
	all []*caller
}

func (r *remembering) Accept() (net.Conn, error) {
	conn, err := r.Listener.Accept()
	if err == nil {
		r.all = append(r.all, conn.(*caller))
	}
	return conn, err
}

func TestConnectionsThatAreTooManyAreClosedAtOnce(t *testing.T) {
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
		t.Errorf("the third: %v", err)
	}
	first.Close()
	first.Close() // gives its place back once
	four := dial(t, l)
	select {
	case <-accepted:
	case <-time.After(time.Minute):
		t.Fatal("a place that is free is not given")
	}
	five := dial(t, l)
	if _, err := five.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the fifth: %v", err)
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
