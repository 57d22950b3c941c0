package server

import (
	"net"
	"net/netip"
	"sync"
)

// bounded is a listener that closes connections that are too many, of all clients together or of
// one network. It does not let them wait: those who come after them would wait, too.
type limitListener struct {
	net.Listener
	most      int // connections at a time
	mostOfOne int // limit of one network; this machine has none, because a proxy connects from it

	mu   sync.Mutex
	open int
	of   map[netip.Prefix]int // open connections by network; only networks with some
}

func newLimitListener(l net.Listener, most, mostOfOne int) *limitListener {
	return &limitListener{Listener: l, most: most, mostOfOne: mostOfOne, of: map[netip.Prefix]int{}}
}

func (b *limitListener) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, local := networkOf(conn)
		if !b.addConn(from, local) {
			conn.Close()
			continue
		}
		return &countedConn{Conn: conn, done: sync.OnceFunc(func() { b.removeConn(from) })}, nil
	}
}

// addConn counts a connection, and reports whether there is room for it.
func (b *limitListener) addConn(from netip.Prefix, local bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open >= b.most || !local && b.of[from] >= b.mostOfOne {
		return false
	}
	b.open++
	b.of[from]++
	return true
}

func (b *limitListener) removeConn(from netip.Prefix) {
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
	return networkOfAddr(addr.Addr().String()), addr.Addr().Unmap().IsLoopback()
}

// counted is removed from the count when it is closed.
type countedConn struct {
	net.Conn
	done func()
}

func (c *countedConn) Close() error {
	c.done()
	return c.Conn.Close()
}
