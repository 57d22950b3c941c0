package libvirt

import (
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"

	"github.com/decamp/decamp/internal/targets/targettest"
)

// hookedConn is a connection whose client writes one message at a time. The hook decides the outcome of each call.
type hookedConn struct {
	net.Conn
	hook       *targettest.CallHook
	loseAnswer atomic.Bool // the next answer is lost
}

// changingCalls are the numbers of the calls that change something: they create, remove and fill volumes, and remove
// and define domains.
var changingCalls = map[uint32]bool{93: true, 94: true, upload: true, 231: true, 350: true}

var errHook = errors.New("connection reset by the test")

func (c *hookedConn) Write(p []byte) (int, error) {
	const procAt, kindAt, call = 12, 16, 0
	if binary.BigEndian.Uint32(p[kindAt:]) == call {
		switch c.hook.NextOutcome(!changingCalls[binary.BigEndian.Uint32(p[procAt:])]) {
		case targettest.Lost:
			_ = c.Close()
			return 0, errHook
		case targettest.Unanswered:
			c.loseAnswer.Store(true)
		}
	}
	return c.Conn.Write(p)
}

func (c *hookedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.loseAnswer.Load() {
		_ = c.Close()
		return 0, errHook
	}
	return n, err
}
