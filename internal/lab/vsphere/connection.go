package vsphere

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// A wire is one accepted TCP connection, below TLS. It can hold back what TLS writes: a
// 256 KiB piece of a body is 16 records, and one system call in place of 16 is what makes
// the server cheap.
type wire struct {
	net.Conn
	rate   *bucket
	onDone func() // called once, when the connection is closed

	mu      sync.Mutex
	held    []byte
	holding bool
	closed  atomic.Bool
}

type wireKey struct{}

// wireOf returns the connection a request came over.
func wireOf(ctx context.Context) *wire {
	w, _ := ctx.Value(wireKey{}).(*wire)
	return w
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.holding {
		return w.Conn.Write(p)
	}
	w.held = append(w.held, p...)
	return len(p), nil
}

// startBuffering buffers writes until flush.
func (w *wire) startBuffering() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding = true
}

// flush sends the buffered data and ends buffering.
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

// resetTCP drops the connection with a TCP reset: the client sees "connection reset by peer".
func (w *wire) resetTCP() {
	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the close below reports what matters
	}
	_ = w.Close()
}

func (w *wire) Close() error {
	if w.closed.Swap(true) {
		return nil
	}
	w.onDone()
	return w.Conn.Close()
}

// A gate is the listener: it counts connections and resets those above the limit at once,
// as Envoy on ESXi does above 128 ("remote https connections exceed max allowed: 128",
// KB 383231).
type gate struct {
	net.Listener
	lab  *Lab
	open atomic.Int64
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		limits := g.lab.currentLimits()
		w := &wire{Conn: c, rate: newBucket(int64(limits.ConnRate)), onDone: func() { g.open.Add(-1) }}
		if n := g.open.Add(1); limits.MaxConns > 0 && n > int64(limits.MaxConns) {
			g.lab.stats.refuseConn()
			w.resetTCP()
			continue
		}
		g.lab.stats.acceptConn(g.open.Load())
		return w, nil
	}
}
