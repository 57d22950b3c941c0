// Package rpc speaks libvirt's remote protocol over a connection that somebody else made: the calls
// that deliver a VM, and the sparse streams that carry its disks. The protocol is described in
// https://libvirt.org/kbase/internals/rpc.html and in libvirt's remote_protocol.x.
//
// Calls end with their context, and with the connection: nothing waits for an answer that cannot
// come any more. That, and holes, is what digitalocean/go-libvirt lacks: an upload of its that breaks
// waits for ever (in version v0.0.0-20260814190004-1a83157e1858).
package rpc

import (
	"bufio"
	"context"
	"net"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A Client makes one call at a time. Whatever goes wrong with its connection, or a context that ends
// during a call, makes it useless.
type Client struct {
	conn     net.Conn
	patience time.Duration
	serial   uint32

	frames chan frame    // closed by read when the connection has ended
	broken error         // why; valid once frames is closed
	gone   chan struct{} // closed by Close
}

// New takes the connection over. patience is how long the other side may say nothing. Close ends
// what it starts.
func New(conn net.Conn, patience time.Duration) *Client {
	c := &Client{conn: conn, patience: patience, frames: make(chan frame), gone: make(chan struct{})}
	go c.read()
	return c
}

// Close ends the connection, and returns when nothing of it is left.
func (c *Client) Close() error {
	close(c.gone)
	err := c.conn.Close()
	for range c.frames { // until read has ended
	}
	return err
}

// read hands out what arrives, until the connection ends.
func (c *Client) read() {
	defer close(c.frames)
	r := bufio.NewReaderSize(c.conn, 256<<10)
	for {
		f, err := readFrame(r)
		if err != nil {
			c.broken = err
			return
		}
		select {
		case c.frames <- f:
		case <-c.gone:
			return
		}
	}
}

// within bounds a call by ctx and patience, until the returned func is called.
func (c *Client) within(ctx context.Context) (end func()) {
	c.wait(ctx)
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if stop() {
			_ = c.conn.SetDeadline(time.Time{})
		}
	}
}

// wait begins to wait for the other side anew.
func (c *Client) wait(ctx context.Context) {
	if ctx.Err() == nil {
		_ = c.conn.SetDeadline(time.Now().Add(c.patience)) // a closed connection tells by itself
	}
}

// call makes a call and returns its result, an *Error if libvirt refused it.
func (c *Client) call(ctx context.Context, proc uint32, a args) (*result, error) {
	defer c.within(ctx)()
	c.serial++
	if err := c.send(ctx, frame{proc: proc, kind: call, payload: a}); err != nil {
		return nil, err
	}
	f, err := c.next(ctx)
	if err != nil {
		return nil, err
	}
	return &result{rest: f.payload}, nil
}

// grace is how long a change that is under way may go on once its context has ended.
const grace = 20 * time.Second

// change makes a call that changes something. Once it is begun its end is awaited, as far as grace
// goes: who is asked to stop wants to know what there is to take away.
func (c *Client) change(ctx context.Context, proc uint32, a args) (*result, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	defer stop()
	r, err := c.call(longer, proc, a)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return r, err
}

// send sends a frame of the call under way.
func (c *Client) send(ctx context.Context, f frame) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.serial = c.serial
	if _, err := c.conn.Write(f.encode()); err != nil {
		return c.lost(ctx, err)
	}
	return nil
}

// next returns the next frame of the call under way. Others are events, or the rest of a stream that
// has ended.
func (c *Client) next(ctx context.Context) (frame, error) {
	for f := range c.frames {
		if f.mine(c.serial) {
			return f, f.refusal()
		}
	}
	return frame{}, c.lost(ctx, c.broken)
}

func (f frame) mine(serial uint32) bool {
	return f.serial == serial && f.program == program && (f.kind == reply || f.kind == stream || f.kind == hole)
}

func (f frame) refusal() error {
	if f.status == failed {
		return parseError(f.payload)
	}
	return nil
}

// lost is the error of a connection that broke.
func (c *Client) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if fault.KindOf(err) != fault.Internal {
		return err
	}
	return fault.New(fault.Transient, "the connection to libvirt broke: %w", err).
		WithHint("see whether libvirtd or virtqemud still runs there, then run the same command again: systemctl status libvirtd virtqemud")
}
