package libvirt

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/decamp/decamp/internal/target/targettest"
)

// A tap decides about the calls that go through its connections.
type tap struct {
	mu    sync.Mutex
	hook  func(int) targettest.Fate
	calls int
}

func (t *tap) set(hook func(int) targettest.Fate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hook, t.calls = hook, 0
}

func (t *tap) fate() targettest.Fate {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	if t.hook == nil {
		return targettest.Pass
	}
	return t.hook(t.calls)
}

// tapped is a connection whose client writes one message at a time.
type tapped struct {
	net.Conn
	tap  *tap
	deaf atomic.Bool // the next answer gets lost
}

var errTapped = errors.New("connection reset by the test")

func (c *tapped) Write(p []byte) (int, error) {
	const kindAt, call = 16, 0
	if binary.BigEndian.Uint32(p[kindAt:]) == call {
		switch c.tap.fate() {
		case targettest.Lost:
			_ = c.Close()
			return 0, errTapped
		case targettest.Unanswered:
			c.deaf.Store(true)
		}
	}
	return c.Conn.Write(p)
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.deaf.Load() {
		_ = c.Close()
		return 0, errTapped
	}
	return n, err
}
