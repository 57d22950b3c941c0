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
	procDomainOpenConsole = 201

	// consoleSafe has libvirt refuse where its driver does not keep two from having one console. The flag
	// that takes a console from who has it is 1, and never sent.
	consoleSafe = 2

	// keysAtOnce is how many bytes of what is typed are in one frame at most.
	keysAtOnce = 16 << 10

	// farewell is how long the end of a console may take, which frees it for others.
	farewell = 5 * time.Second
)

// A Console is the serial console of a domain, which libvirt passes on both ways. One may read and another write it,
// and anybody close it. It holds one frame at a time, of maxFrame bytes at most: who does not read has libvirt wait.
//
// Silence is no fault of a console: neither end is bounded by the Client's patience.
type Console struct {
	client *Client
	serial uint32
	unread []byte // of the last frame; Read's

	mu   sync.Mutex
	last error         // what every further Read returns; nil until done is closed
	done chan struct{} // closed once nothing more comes
}

// OpenConsole attaches to the first console of a domain that runs. While somebody else has it, the error is IsCode
// OperationFailed. Until it is closed the Client is for nothing else.
func (c *Client) OpenConsole(ctx context.Context, d Domain) (*Console, error) {
	const first = 0 // no name follows
	if _, err := c.change(ctx, procDomainOpenConsole, args{}.domain(d).uint32(first).uint32(consoleSafe)); err != nil {
		return nil, err
	}
	return &Console{client: c, serial: c.serial, done: make(chan struct{})}, nil
}

// Read returns what came. It is io.EOF once libvirt has ended the stream, an *Error if it gave a reason, and
// net.ErrClosed after Close. After any of them the Client can be called again, as far as it is connected.
func (k *Console) Read(p []byte) (int, error) {
	for len(k.unread) == 0 {
		select {
		case <-k.done:
			return 0, k.last
		case f, open := <-k.client.frames:
			k.receive(f, open)
		}
	}
	n := copy(p, k.unread)
	k.unread = k.unread[n:]
	return n, nil
}

// receive takes the next frame of the connection; none if it is not open any more.
func (k *Console) receive(f frame, open bool) {
	switch {
	case !open:
		k.end(k.client.lost(context.Background(), k.client.broken))
	case !f.mine(k.serial):
	case f.status == failed:
		k.end(f.refusal())
	case f.kind != stream || f.status != ok && f.status != continues:
		k.end(fault.New(fault.Corrupt, "libvirt sends a message of kind %d and status %d as a part of a console", f.kind, f.status).
			WithHint("run the same command again"))
	case f.status == ok || len(f.payload) == 0:
		k.end(io.EOF)
	default:
		k.unread = f.payload
	}
}

// end keeps the first reason.
func (k *Console) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		k.last = err
		close(k.done)
	}
}

// Write types p. It waits for a guest that does not read, until Close.
func (k *Console) Write(p []byte) (n int, err error) {
	for len(p) > n {
		select {
		case <-k.done:
			return n, k.last
		default:
		}
		part := p[n:min(len(p), n+keysAtOnce)]
		if err := k.send(frame{status: continues, payload: part}); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

func (k *Console) send(f frame) error {
	f.proc, f.kind, f.serial = procDomainOpenConsole, stream, k.serial
	if _, err := k.client.conn.Write(f.encode()); err != nil {
		return k.client.lost(context.Background(), err)
	}
	return nil
}

// Close has libvirt end the stream, and waits for a moment until it has: the next may have the console then. It says
// nothing of a connection that broke.
func (k *Console) Close() error {
	select {
	case <-k.done:
		return nil
	default:
	}
	_ = k.client.conn.SetDeadline(time.Now().Add(farewell)) // also for a Write that waits
	_ = k.send(frame{status: ok})
	for {
		select {
		case <-k.done:
			return nil
		case f, open := <-k.client.frames:
			if !open || f.mine(k.serial) && f.status != continues {
				k.end(net.ErrClosed)
			}
		}
	}
}
