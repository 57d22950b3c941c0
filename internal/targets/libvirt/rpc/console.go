package rpc

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

const (
	procDomainOpenConsole = 201 // REMOTE_PROC_DOMAIN_OPEN_CONSOLE

	// consoleSafe (VIR_DOMAIN_CONSOLE_SAFE) makes libvirt fail if its driver does not lock consoles. The
	// flag
	// VIR_DOMAIN_CONSOLE_FORCE, which disconnects another client, is 1 and never sent.
	consoleSafe = 2

	// maxInput is the maximum number of input bytes in one frame.
	maxInput = 16 << 10

	// closeTimeout limits the wait of Close for the end of the stream. Then other clients can open the
	// console.
	closeTimeout = 5 * time.Second
)

// Console is the serial console of a domain, in both directions. One goroutine can read while another
// writes, and any
// can call Close. It buffers one frame of at most maxFrame bytes; libvirt waits for a slow reader.
//
// The Client's timeout does not apply to a console, because a guest may be silent.
type Console struct {
	client *Client // connection, not used for calls until the console ends
	serial uint32  // serial number of the opening call
	unread []byte  // rest of the last frame; used by Read only

	mu   sync.Mutex    // guards last
	last error         // result of further calls of Read and Write; nil until done is closed
	done chan struct{} // closed when no more frames are expected
}

// OpenConsole attaches to the first console of a running domain. If another client uses it, the error
// has the code
// OperationFailed. The Client cannot make calls until the console ends.
func (c *Client) OpenConsole(ctx context.Context, d Domain) (*Console, error) {
	const first = 0 // no name follows
	if _, err := c.callChange(ctx, procDomainOpenConsole, args{}.domain(d).uint32(first).uint32(consoleSafe)); err != nil {
		return nil, err
	}
	return &Console{client: c, serial: c.serial, done: make(chan struct{})}, nil
}

// Read returns output of the guest. It returns io.EOF after libvirt has ended the stream, an *Error if
// libvirt reported
// a reason, and net.ErrClosed after Close. Then the Client can make calls again if its connection
// works.
func (k *Console) Read(p []byte) (int, error) {
	for len(k.unread) == 0 {
		select {
		case <-k.done:
			return 0, k.last
		case f, open := <-k.client.frames:
			k.handleFrame(f, open)
		}
	}
	n := copy(p, k.unread)
	k.unread = k.unread[n:]
	return n, nil
}

// handleFrame processes a received frame. open is false if the connection has ended.
func (k *Console) handleFrame(f frame, open bool) {
	switch {
	case !open:
		k.setLast(k.client.connectionError(context.Background(), k.client.readErr))
	case !f.belongsTo(k.serial):
	case f.status == failed:
		k.setLast(f.toError())
	case f.kind != stream || f.status != ok && f.status != continues:
		k.setLast(fault.New(fault.Corrupt, "libvirt sent an invalid message on a console: kind %d, status %d", f.kind, f.status).
			WithHint("run the same command again"))
	case f.status == ok || len(f.payload) == 0:
		k.setLast(io.EOF)
	default:
		k.unread = f.payload
	}
}

// setLast ends the console with err, unless it has ended already.
func (k *Console) setLast(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		k.last = err
		close(k.done)
	}
}

// Write sends p as input. It blocks while the guest reads nothing, until Close.
func (k *Console) Write(p []byte) (n int, err error) {
	for len(p) > n {
		select {
		case <-k.done:
			return n, k.last
		default:
		}
		part := p[n:min(len(p), n+maxInput)]
		if err := k.send(frame{status: continues, payload: part}); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// send writes a frame of the console's stream.
func (k *Console) send(f frame) error {
	f.proc, f.kind, f.serial = procDomainOpenConsole, stream, k.serial
	if _, err := k.client.conn.Write(f.encode()); err != nil {
		return k.client.connectionError(context.Background(), err)
	}
	return nil
}

// Close ends the stream and waits up to closeTimeout for libvirt's answer, so that another client can
// open the
// console. It ignores errors of the connection.
func (k *Console) Close() error {
	select {
	case <-k.done:
		return nil
	default:
	}
	_ = k.client.conn.SetDeadline(time.Now().Add(closeTimeout)) // also for a Write that waits
	_ = k.send(frame{status: ok})
	for {
		select {
		case <-k.done:
			return nil
		case f, open := <-k.client.frames:
			if !open || f.belongsTo(k.serial) && f.status != continues {
				k.setLast(net.ErrClosed)
			}
		}
	}
}
