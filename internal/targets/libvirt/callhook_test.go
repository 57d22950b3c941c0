package libvirt

import (
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"

	"github.com/decamp/decamp/internal/targets/targettest"
)

// tapped is a connection whose client writes one message at a time.
type tapped struct {
	net.Conn
	tap  *targettest.CallHook
	deaf atomic.Bool // the next answer gets lost
}

var errTapped = errors.New("connection reset by the test")

func (c *tapped) Write(p []byte) (int, error) {
	const kindAt, call = 16, 0
	if binary.BigEndian.Uint32(p[kindAt:]) == call {
		switch c.tap.NextOutcome() {
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
