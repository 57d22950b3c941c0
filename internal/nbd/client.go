package nbd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// MaxRequest is the largest read or write of one request, in bytes. Every server accepts this size.
const MaxRequest = 1 << 20

// maxZeroes is the largest range that one request zeroes, in bytes, so that a slow disk answers in
// time.
const maxZeroes = 64 << 20

// A Client is a connection to one export. It is safe for concurrent use.
type Client struct {
	conn  io.ReadWriteCloser // connection; closed by the first error
	size  int64              // size of the export in bytes
	flags uint16             // transmission flags of the export
	done  chan struct{}      // closed when the goroutine that reads replies has ended

	sendMu sync.Mutex // held while a request is written

	mu      sync.Mutex              // guards the fields below
	next    uint64                  // cookie of the last request
	pending map[uint64]*pendingCall // calls without a reply, by cookie
	err     error                   // first error; nil while the connection works
}

// A pendingCall waits for its reply.
type pendingCall struct {
	into []byte     // buffer of a read; nil for other commands
	end  chan error // receives the result once; has room for it
}

// New makes the handshake with the server at the other end of conn, and starts to read its replies. The
// Client owns conn, also after an error.
func New(conn io.ReadWriteCloser) (*Client, error) {
	c := &Client{conn: conn, pending: map[uint64]*pendingCall{}, done: make(chan struct{})}
	if err := c.handshake(); err != nil {
		return nil, errors.Join(connectionError(err), conn.Close())
	}
	go c.readReplies()
	return c, nil
}

// handshake requests the export without a name. A server without such an export closes the connection.
func (c *Client) handshake() error {
	var hello [18]byte
	if _, err := io.ReadFull(c.conn, hello[:]); err != nil {
		return fmt.Errorf("no greeting: %w", err)
	}
	if string(hello[:16]) != serverMagic || binary.BigEndian.Uint16(hello[16:])&fixedNewstyle == 0 {
		return fault.New(fault.Corrupt, "what answers does not speak NBD: %q", hello)
	}
	answer := binary.BigEndian.AppendUint32(nil, uint32(fixedNewstyle|binary.BigEndian.Uint16(hello[16:])&noZeroes))
	answer = binary.BigEndian.AppendUint64(answer, optionMagic)
	answer = binary.BigEndian.AppendUint32(answer, optExportName)
	answer = binary.BigEndian.AppendUint32(answer, 0)
	if _, err := c.conn.Write(answer); err != nil {
		return err
	}
	export := make([]byte, 10)
	if binary.BigEndian.Uint16(hello[16:])&noZeroes == 0 {
		export = make([]byte, 10+124)
	}
	if _, err := io.ReadFull(c.conn, export); err != nil {
		return fmt.Errorf("no export: %w", err)
	}
	c.size, c.flags = int64(binary.BigEndian.Uint64(export)), binary.BigEndian.Uint16(export[8:])
	if c.size < 0 || c.flags&hasFlags == 0 {
		return fault.New(fault.Corrupt, "an export of %d bytes with flags %#x", uint64(c.size), c.flags)
	}
	return nil
}

// Size returns the export's size in bytes.
func (c *Client) Size() int64 { return c.size }

// Writable returns an error unless the export supports writing, zeroing and flushing.
func (c *Client) Writable() error {
	if c.flags&readOnly == 0 && c.flags&sendFlush != 0 && c.flags&sendZeroes != 0 {
		return nil
	}
	return fault.New(fault.Unsupported, "the export does not support writing, flushing and zeroing (flags %#x)", c.flags)
}

// ReadAt fills p from off.
func (c *Client) ReadAt(ctx context.Context, p []byte, off int64) error {
	return c.splitRequest(off, int64(len(p)), MaxRequest, func(at, n int64) error {
		return c.doRequest(ctx, cmdRead, disk.Range{Off: off + at, Len: n}, nil, p[at:at+n])
	})
}

// WriteAt writes p at off. It may still be volatile on return.
func (c *Client) WriteAt(ctx context.Context, p []byte, off int64) error {
	return c.splitRequest(off, int64(len(p)), MaxRequest, func(at, n int64) error {
		return c.doRequest(ctx, cmdWrite, disk.Range{Off: off + at, Len: n}, p[at:at+n], nil)
	})
}

// Zero makes r read as zeros. It may still be volatile on return.
func (c *Client) Zero(ctx context.Context, r disk.Range) error {
	return c.splitRequest(r.Off, r.Len, maxZeroes, func(at, n int64) error {
		return c.doRequest(ctx, cmdZeroes, disk.Range{Off: r.Off + at, Len: n}, nil, nil)
	})
}

// Flush returns when all data that was written before it survives a power loss.
func (c *Client) Flush(ctx context.Context) error {
	return c.doRequest(ctx, cmdFlush, disk.Range{}, nil, nil)
}

// splitRequest calls do for parts of at most most bytes of the n bytes at off. It stops at the first
// error.
func (c *Client) splitRequest(off, n, most int64, do func(at, n int64) error) error {
	if err := disk.CheckRange(c.size, disk.Range{Off: off, Len: n}); err != nil {
		return err
	}
	for at := int64(0); at < n; at += most {
		if err := do(at, min(most, n-at)); err != nil {
			return err
		}
	}
	return nil
}

// doRequest sends a request and waits for its reply. data is the payload of a write, and into the
// buffer of a read. If ctx ends first, it closes the connection and waits for the reader of replies,
// because into must not be written after doRequest returns.
func (c *Client) doRequest(ctx context.Context, command uint16, r disk.Range, data, into []byte) error {
	stop := context.AfterFunc(ctx, func() { c.closeWith(ctx.Err()) })
	defer stop()
	asked := &pendingCall{into: into, end: make(chan error, 1)}
	cookie, err := c.registerCall(asked)
	if err != nil {
		return err
	}
	head := binary.BigEndian.AppendUint32(nil, callMagic)
	head = binary.BigEndian.AppendUint16(head, 0)
	head = binary.BigEndian.AppendUint16(head, command)
	head = binary.BigEndian.AppendUint64(head, cookie)
	head = binary.BigEndian.AppendUint64(head, uint64(r.Off))
	head = binary.BigEndian.AppendUint32(head, uint32(r.Len))
	if err := c.sendParts(head, data); err != nil {
		c.closeWith(connectionError(err))
	}
	return <-asked.end
}

// registerCall adds a call to pending and returns its cookie. It fails if the connection has ended.
func (c *Client) registerCall(asked *pendingCall) (cookie uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.next++
	c.pending[c.next] = asked
	return c.next, nil
}

// sendParts writes one message. Concurrent messages are not mixed.
func (c *Client) sendParts(parts ...[]byte) error {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	for _, p := range parts {
		if len(p) == 0 {
			continue
		}
		if _, err := c.conn.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// closeWith closes the connection and records the first error. The goroutine that reads replies then
// ends all calls; until then their buffers are in use.
func (c *Client) closeWith(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	_ = c.conn.Close() // the connection has ended anyway
}

// readReplies reads replies until the connection ends, and then ends all pending calls.
func (c *Client) readReplies() {
	defer close(c.done)
	for {
		if err := c.readReply(); err != nil {
			c.closeWith(connectionError(err))
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for cookie, asked := range c.pending {
		delete(c.pending, cookie)
		asked.end <- c.err
	}
}

// readReply reads one reply and ends its call. It returns an error only if the connection cannot be
// used any more.
func (c *Client) readReply() error {
	var head [16]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return err
	}
	cookie, code := binary.BigEndian.Uint64(head[8:]), binary.BigEndian.Uint32(head[4:])
	c.mu.Lock()
	asked := c.pending[cookie]
	c.mu.Unlock()
	if binary.BigEndian.Uint32(head[:]) != replyMagic || asked == nil {
		return fault.New(fault.Corrupt, "invalid answer: % x", head)
	}
	if code == 0 && len(asked.into) > 0 {
		if _, err := io.ReadFull(c.conn, asked.into); err != nil {
			return err // the call is pending still, and ends with all others
		}
	}
	c.mu.Lock()
	delete(c.pending, cookie)
	c.mu.Unlock()
	asked.end <- replyError(code)
	return nil
}

// Close sends a disconnect request, closes the connection, and waits until no call is running. Calls
// that were running fail.
func (c *Client) Close() error {
	bye := binary.BigEndian.AppendUint32(nil, callMagic)
	bye = binary.BigEndian.AppendUint16(bye, 0)
	bye = binary.BigEndian.AppendUint16(bye, cmdDisconnect)
	_ = c.sendParts(append(bye, make([]byte, 20)...)) // the connection may be broken
	err := c.conn.Close()
	<-c.done
	if errors.Is(err, net.ErrClosed) { // the server hung up first
		return nil
	}
	return err
}

// connectionError returns the error for a connection that ended, with its remedy.
func connectionError(err error) error {
	var own *fault.Error
	if errors.As(err, &own) || errors.Is(err, context.Canceled) {
		return err
	}
	return fault.New(fault.Unreachable, "the connection to the node broke: %w", err).
		WithHint("check that the node is up: ssh NODE uptime; then run the same command again: it continues where it stopped")
}

// replyError returns the error for the error number of a reply, nil for 0. The numbers are those of
// Linux.
func replyError(code uint32) error {
	switch err := syscall.Errno(code); err {
	case 0:
		return nil
	case syscall.ENOSPC:
		return fault.New(fault.Full, "the node has no room for the volume: %w", err).
			WithHint("make room where the volume is (on the node: pvesm status; lvs shows how full thin pools are), and run the same command again")
	case syscall.EPERM:
		return fault.New(fault.Denied, "the node refuses writes to the volume: %w", err).
			WithHint("see whether its storage is read-only: dmesg, on the node")
	default:
		return fault.New(fault.Corrupt, "the disk of the node fails: %w", err).
			WithHint("check its storage on the node: dmesg -T | tail, smartctl -H; then run the same command again")
	}
}
