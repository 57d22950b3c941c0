// Package rpc implements a client of libvirt's remote protocol on an existing connection: the calls that deliver
// a VM, and the sparse streams that transfer its disks. The protocol is described in
// https://libvirt.org/kbase/internals/rpc.html and in libvirt's remote_protocol.x.
//
// A call ends when its context or the connection ends. github.com/digitalocean/go-libvirt has no sparse streams,
// and an upload in it blocks forever if the connection breaks (version v0.0.0-20260814190004-1a83157e1858).
package rpc

import (
	"bufio"
	"context"
	"net"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Client makes one call at a time and is not safe for concurrent use. After an error of the connection,
// or if a
// context ends during a call, it is unusable.
type Client struct {
	conn    net.Conn      // connection to libvirt
	timeout time.Duration // maximum silence of libvirt during a call
	serial  uint32        // number of the current call, from 1

	frames  chan frame    // received frames; closed by readFrames at the end of the connection
	readErr error         // error of readFrames; valid after frames is closed
	closed  chan struct{} // closed by Close
}

// New returns a client that owns conn. timeout is the maximum silence of the server. Close ends its
// goroutine.
func New(conn net.Conn, patience time.Duration) *Client {
	c := &Client{conn: conn, timeout: patience, frames: make(chan frame), closed: make(chan struct{})}
	go c.readFrames()
	return c
}

// Close closes the connection and waits for the goroutine of New.
func (c *Client) Close() error {
	close(c.closed)
	err := c.conn.Close()
	for range c.frames { // until read has ended
	}
	return err
}

// readFrames sends received frames to c.frames until the connection ends.
func (c *Client) readFrames() {
	defer close(c.frames)
	r := bufio.NewReaderSize(c.conn, 256<<10)
	for {
		f, err := readFrame(r)
		if err != nil {
			c.readErr = err
			return
		}
		select {
		case c.frames <- f:
		case <-c.closed:
			return
		}
	}
}

// limitCall makes I/O fail when ctx ends or the server is silent too long. The returned function
// removes the limits.
func (c *Client) limitCall(ctx context.Context) (end func()) {
	c.extendDeadline(ctx)
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if stop() {
			_ = c.conn.SetDeadline(time.Time{})
		}
	}
}

// extendDeadline restarts the time in which the server must send or accept data.
func (c *Client) extendDeadline(ctx context.Context) {
	if ctx.Err() == nil {
		_ = c.conn.SetDeadline(time.Now().Add(c.timeout)) // an error means that the connection is closed
	}
}

// call makes a call and returns its result. If libvirt rejects the call, the error is an *Error.
func (c *Client) call(ctx context.Context, proc uint32, a args) (*result, error) {
	defer c.limitCall(ctx)()
	c.serial++
	if err := c.send(ctx, frame{proc: proc, kind: call, payload: a}); err != nil {
		return nil, err
	}
	f, err := c.nextFrame(ctx)
	if err != nil {
		return nil, err
	}
	return &result{rest: f.payload}, nil
}

// changeGrace is how long a change can continue after its context has ended.
const changeGrace = 20 * time.Second

// callChange is call for calls that change something. After ctx ends, it waits up to changeGrace for
// the result, so
// that the caller knows what exists and must be removed.
func (c *Client) callChange(ctx context.Context, proc uint32, a args) (*result, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(changeGrace, cancel) })
	defer stop()
	r, err := c.call(longer, proc, a)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return r, err
}

// send writes a frame with the serial number of the current call.
func (c *Client) send(ctx context.Context, f frame) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.serial = c.serial
	if _, err := c.conn.Write(f.encode()); err != nil {
		return c.connectionError(ctx, err)
	}
	return nil
}

// nextFrame returns the next frame of the current call. It skips events, and frames of earlier streams.
func (c *Client) nextFrame(ctx context.Context) (frame, error) {
	for f := range c.frames {
		if f.belongsTo(c.serial) {
			return f, f.toError()
		}
	}
	return frame{}, c.connectionError(ctx, c.readErr)
}

// belongsTo reports whether the frame is a reply, or a part of a stream, of the call with a serial
// number.
func (f frame) belongsTo(serial uint32) bool {
	return f.serial == serial && f.program == program && (f.kind == reply || f.kind == stream || f.kind == hole)
}

// toError returns the *Error in the frame, or nil if its status is not failed.
func (f frame) toError() error {
	if f.status == failed {
		return parseError(f.payload)
	}
	return nil
}

// connectionError returns the error for a connection that ended with err: ctx.Err() if ctx ended, else
// fault.Transient.
func (c *Client) connectionError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if fault.KindOf(err) != fault.Internal {
		return err
	}
	return fault.New(fault.Transient, "the connection to libvirt was lost: %w", err).
		WithHint("check libvirtd or virtqemud on that host, then run the same command again: systemctl status libvirtd virtqemud")
}
