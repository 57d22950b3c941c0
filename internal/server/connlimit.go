package server

import (
	"net"
	"net/netip"
	"sync"
)

// limitListener is a listener that closes excess connections, of all clients together or of one
// network. It does not make them wait, because later connections would wait as well. It is safe for
// concurrent use.
type limitListener struct {
	net.Listener
	most      int // limit of open connections
	mostOfOne int // limit of one network; loopback addresses have none, because a proxy connects from there

	mu   sync.Mutex           // guards open and of
	open int                  // open connections
	of   map[netip.Prefix]int // open connections by network; only networks with some
}

// newLimitListener returns a listener that accepts connections from l.
func newLimitListener(l net.Listener, most, mostOfOne int) *limitListener {
	return &limitListener{Listener: l, most: most, mostOfOne: mostOfOne, of: map[netip.Prefix]int{}}
}

// Accept returns the next connection within the limits. It closes the others.
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

// addConn counts a connection. It reports false, and does not count it, if a limit is reached.
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

// removeConn ends addConn for a connection that was closed.
func (b *limitListener) removeConn(from netip.Prefix) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	if b.of[from]--; b.of[from] == 0 {
		delete(b.of, from)
	}
}

// networkOf returns the network of a connection's peer, and whether it is a loopback address.
func networkOf(conn net.Conn) (from netip.Prefix, local bool) {
	addr, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{}, false
	}
	return networkOfAddr(addr.Addr().String()), addr.Addr().Unmap().IsLoopback()
}

// countedConn is a connection that is counted until it is closed.
type countedConn struct {
	net.Conn
	done func() // removes the connection from the count, once
}

// Close closes the connection. It may be called several times.
func (c *countedConn) Close() error {
	c.done()
	return c.Conn.Close()
}
