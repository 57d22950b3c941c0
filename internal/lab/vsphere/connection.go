package vsphere

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// A wire is an accepted TCP connection, below TLS. It can collect what TLS writes: a piece of 256 KiB
// is 16 records, which one system call sends instead of 16.
type wire struct {
	net.Conn
	rate   *bucket // rate limit of the connection
	onDone func()  // called once, when the connection is closed

	mu      sync.Mutex  // guards the fields below, except closed
	held    []byte      // collected bytes
	holding bool        // whether Write collects
	closed  atomic.Bool // whether Close was called
}

// wireKey is the key of the wire in the context of a request.
type wireKey struct{}

// wireOf returns the connection of a request.
func wireOf(ctx context.Context) *wire {
	w, _ := ctx.Value(wireKey{}).(*wire)
	return w
}

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.holding {
		return w.Conn.Write(p)
	}
	w.held = append(w.held, p...)
	return len(p), nil
}

// startBuffering collects writes until flush.
func (w *wire) startBuffering() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding = true
}

// flush sends the collected bytes and ends the collecting.
func (w *wire) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding = false
	if len(w.held) == 0 {
		return nil
	}
	_, err := w.Conn.Write(w.held)
	w.held = w.held[:0]
	return err
}

// resetTCP closes the connection with a TCP reset, which clients report as "connection reset by peer".
func (w *wire) resetTCP() {
	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the close below reports what matters
	}
	_ = w.Close()
}

// Close closes the connection once. Later calls do nothing.
func (w *wire) Close() error {
	if w.closed.Swap(true) {
		return nil
	}
	w.onDone() // the connection no longer counts
	return w.Conn.Close()
}

// A limitListener counts connections and resets those above the limit at once, as Envoy on ESXi does
// above 128 ("remote https connections exceed max allowed: 128", KB 383231).
type limitListener struct {
	net.Listener
	lab  *Lab         // emulator with the limits and counters
	open atomic.Int64 // number of open connections
}

// Accept returns the next connection within the limit, as a *wire.
func (g *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		limits := g.lab.currentLimits()
		w := &wire{Conn: c, rate: newBucket(int64(limits.ConnRate)), onDone: func() { g.open.Add(-1) }}
		if n := g.open.Add(1); limits.MaxConns > 0 && n > int64(limits.MaxConns) {
			g.lab.stats.refuseConn()
			w.resetTCP() // also decrements open
			continue
		}
		g.lab.stats.acceptConn(g.open.Load())
		return w, nil
	}
}
