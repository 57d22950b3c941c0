package server

import (
	"net"
	"net/netip"
	"sync"
)

// bounded is a listener that closes connections that are too many, of all clients together or of
// one network. It does not let them wait: those who come after them would wait, too.
type bounded struct {
	net.Listener
	most      int // connections at a time
	mostOfOne int // limit of one network; this machine has none, because a proxy connects from it

	mu   sync.Mutex
	open int
	of   map[netip.Prefix]int // open connections by network; only networks with some
}

func newBounded(l net.Listener, most, mostOfOne int) *bounded {
	return &bounded{Listener: l, most: most, mostOfOne: mostOfOne, of: map[netip.Prefix]int{}}
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, local := networkOf(conn)
		if !b.enter(from, local) {
			conn.Close()
			continue
		}
		return &counted{Conn: conn, done: sync.OnceFunc(func() { b.leave(from) })}, nil
	}
}

// enter counts a connection, and reports whether there is room for it.
func (b *bounded) enter(from netip.Prefix, local bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open >= b.most || !local && b.of[from] >= b.mostOfOne {
		return false
	}
	b.open++
	b.of[from]++
	return true
}

func (b *bounded) leave(from netip.Prefix) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	if b.of[from]--; b.of[from] == 0 {
		delete(b.of, from)
	}
}

// networkOf returns the network that a connection comes from, and whether that is this machine.
func networkOf(conn net.Conn) (from netip.Prefix, local bool) {
	addr, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{}, false
	}
	return network(addr.Addr().String()), addr.Addr().Unmap().IsLoopback()
}

// counted is removed from the count when it is closed.
type counted struct {
	net.Conn
	done func()
}

func (c *counted) Close() error {
	c.done()
	return c.Conn.Close()
}
