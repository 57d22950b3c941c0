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

// changing are the numbers of the calls of a delivery that change something: volumes are created, removed and
// filled, domains are removed and defined.
var changing = map[uint32]bool{93: true, 94: true, upload: true, 231: true, 350: true}

var errTapped = errors.New("connection reset by the test")

func (c *tapped) Write(p []byte) (int, error) {
	const procAt, kindAt, call = 12, 16, 0
	if binary.BigEndian.Uint32(p[kindAt:]) == call {
		switch c.tap.NextOutcome(!changing[binary.BigEndian.Uint32(p[procAt:])]) {
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
