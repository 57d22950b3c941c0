package shell_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay forwards connections. When it is frozen, its open connections stay open but forward
// nothing more. It forwards later connections.
type relay struct {
	addr string
	to   string
	ln   net.Listener

	relaying sync.WaitGroup
	mu       sync.Mutex
	frozen   chan struct{} // closed by freeze; replaced for later connections
	conns    []net.Conn
}

func startRelay(t *testing.T, to string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{addr: ln.Addr().String(), to: to, ln: ln, frozen: make(chan struct{})}
	r.relaying.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.relayConn(c)
		}
	})
	t.Cleanup(func() {
		r.close()
		r.relaying.Wait()
	})
	return r
}

func (r *relay) relayConn(c net.Conn) {
	d, err := net.Dial("tcp", r.to)
	if err != nil {
		c.Close()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, c, d)
	frozen := r.frozen
	for _, way := range [][2]net.Conn{{c, d}, {d, c}} {
		r.relaying.Go(func() { copyUntilFrozen(way[0], way[1], frozen) })
	}
}

func copyUntilFrozen(to io.Writer, from io.Reader, frozen chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-frozen:
			return
		default:
		}
		if err != nil {
			if c, ok := to.(net.Conn); ok {
				c.Close()
			}
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// close closes all connections and accepts no more.
func (r *relay) close() {
	r.ln.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
}

func (r *relay) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.frozen)
	r.frozen = make(chan struct{})
}
